"""The principal of a request that another broker forwards (KIP-590). An int16, its version, precedes it."""

from barnabas.kafka.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: String = ""
    name: String = ""
    # Whether it has logged in by a delegation token.
    token_authenticated: Bool = False
