"""The principal of a request that another broker forwards (KIP-590), after an int16 with its version."""

from barnabas.kafka.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: String = ""
    name: String = ""
    # Whether the client has logged in with a delegation token.
    token_authenticated: Bool = False
