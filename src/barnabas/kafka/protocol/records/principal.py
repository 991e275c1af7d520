"""The principal of the client whose request a broker forwards in an Envelope request (KIP-590).

The bytes begin with the version as an int16, which the class of this module does not declare.
"""

from barnabas.kafka.protocol.schema import Bool, Message, String


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: String = ""
    name: String = ""
    # Whether the client has logged in with a delegation token.
    token_authenticated: Bool = False
