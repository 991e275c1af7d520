"""Who a client is: SASL exchanges and credentials, without I/O; `acls` is what it may do."""

from barnabas.security.principal import ANONYMOUS, ITSELF, Principal
from barnabas.security.sasl import Exchange, Sasl, SaslError

__all__ = ["ANONYMOUS", "ITSELF", "Exchange", "Principal", "Sasl", "SaslError"]
