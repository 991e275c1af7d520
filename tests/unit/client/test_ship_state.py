"""The state file of a source that `barnabas ship` ships."""

from __future__ import annotations

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.ship_state import Shipped, SourceState


@pytest.mark.parametrize("content", ["", "{}", "[]", "3", '{"position": 7, "clean": true}'])
def test_a_file_that_is_no_state_is_damaged(tmp_path, content):
    state = SourceState(tmp_path, "app.log")
    state.save(Shipped(1, None, 0, 5, 1_700_000_000_000), clean=True)
    state.close()
    (file,) = tmp_path.glob("*.json")
    file.write_text(content)
    with pytest.raises(ClientError, match="is damaged: remove its directory"):
        SourceState(tmp_path, "app.log")
