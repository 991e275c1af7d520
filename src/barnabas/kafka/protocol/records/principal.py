"""Who has sent a request that another broker forwards (KIP-590); its version as an int16 stands before it."""

from barnabas.kafka.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: String = ""
    name: String = ""
    # Whether it has logged in by a delegation token.
    token_authenticated: Bool = False
