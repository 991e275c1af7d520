"""The principal of the client whose request a broker forwards in an Envelope request (KIP-590).

An int16 with the version comes first. It is not part of the declaration.
"""

from barnabas.kafka.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: String = ""
    name: String = ""
    # Whether the client has logged in with a delegation token.
    token_authenticated: Bool = False
