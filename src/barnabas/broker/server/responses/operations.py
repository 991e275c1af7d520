"""What a client may do, in answers (KIP-430): the operations of ACLs, each a bit by its number."""

from __future__ import annotations

#: the answer to who did not ask
NOT_ASKED = -(2**31)
