"""The settings of a broker (https://kafka.apache.org/documentation/#brokerconfigs): those Barnabas honours.

The defaults are Apache Kafka's but for those of a broker that comes up on one machine with nothing to set:
they are listed in docs/reference/differences.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from barnabas.broker.config.kafka_only import unsupported_reason
from barnabas.broker.config.layers import Layer, Source
from barnabas.broker.config.listener_settings import ListenerSetting, overrides
from barnabas.broker.config.setting import DOUBLE_MAX, INT_MAX, LONG_MAX, Setting, Type, Update, setting
from barnabas.broker.config.settings import Settings
from barnabas.broker.config.topic import COMPRESSION_TYPES

_NO_TICKETS = (
    "Has no effect: a broker with a keytab needs no tickets. Kafka's tools may set it; a broker that takes "
    "tickets by GSSAPI says so in its log."
)


class BrokerConfig(Settings):
    """The settings of one broker."""

    spellings: ClassVar[Mapping[str, str]] = {"broker.id": "node.id", "log.dir": "log.dirs"}

    @classmethod
    def find(cls, name: str) -> Setting:
        override = ListenerSetting.parse(name)
        if override is None:
            return super().find(name)
        may_change = override.may_change or override.may_precede
        update = Update.PER_BROKER if may_change else Update.READ_ONLY
        return replace(super().find(override.overridden), name=override.name, update=update)

    def for_listener(self, listener: str, mechanism: str = "") -> BrokerConfig:
        """The value for a listener, or for logins there with a mechanism (`ListenerSetting`)."""
        known: dict[tuple[str, str], BrokerConfig] = self.__dict__.setdefault("_for_listeners", {})
        config = known.get((listener, mechanism))
        if config is None:
            texts: dict[str, str] = {}
            for layer in reversed(self.layers):
                if layer.source is not Source.DEFAULT_CONFIG:
                    texts |= overrides(layer.texts, listener, mechanism)
            layers = [Layer(Source.STATIC_BROKER_CONFIG, texts), *self.layers]
            config = self if not texts else BrokerConfig.from_layers(layers, self.given)
            known[listener, mechanism] = config
        return config

    def has_own(self, listener: str, name: str) -> bool:
        """Whether a listener has a value of its own for the setting called `name`."""
        config = self.for_listener(listener)
        return config is not self and name in config.layers[0].texts

    @classmethod
    def _explain_unknown(cls, name: str) -> str:
        reason = unsupported_reason(name)
        return super()._explain_unknown(name) if reason is None else f"{name} is not supported: {reason}"

    # --- who and where ---
    node_id: int = setting(
        Type.INT,
        1,
        minimum=0,
        doc="This broker's number, unique in its cluster.",
    )
    listeners: tuple[str, ...] = setting(
        Type.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        doc="Where the broker listens: NAME://HOST:PORT, several by commas; port 0 takes a free one.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        Type.LIST,
        (),
        doc="Where clients are told to connect, by listener name; empty means as in listeners.",
    )
    listener_security_protocol_map: str = setting(
        Type.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name, NAME:PROTOCOL; the protocols are PLAINTEXT, SSL "
        "(which is TLS), SASL_PLAINTEXT and SASL_SSL.",
    )
    inter_broker_listener_name: str | None = setting(
        Type.STRING,
        None,
        doc="By which listener the brokers of a cluster reach each other; all of them must have it. Unset "
        "means PLAINTEXT, or the first of listeners where none has that name.",
    )
    security_inter_broker_protocol: str | None = setting(
        Type.STRING,
        None,
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="By which listener the brokers of a cluster reach each other, as its protocol: the first that "
        "speaks it. Only this or inter.broker.listener.name may be set.",
    )
    log_dirs: tuple[str, ...] = setting(
        Type.LIST,
        ("barnabas-data",),
        doc="The folders that hold the data.",
    )
    metadata_store: str | None = setting(
        Type.STRING,
        None,
        choices=("embedded", "memory", "zookeeper"),
        doc="Where the cluster's metadata lives: embedded (files beside the data), memory (lost at stop) or "
        "zookeeper. Unset means zookeeper if zookeeper.connect is set, else embedded.",
    )
    zookeeper_connect: str | None = setting(
        Type.STRING,
        None,
        doc="The ZooKeeper servers that the brokers of a cluster share: HOST:PORT,HOST:PORT/chroot. A chroot "
        "for each cluster keeps several in one ensemble apart; it is made if it is missing.",
    )
    zookeeper_session_timeout_ms: int = setting(
        Type.INT,
        9_000,
        minimum=1,
        doc="How long ZooKeeper hears nothing of a broker before it takes it for dead, in milliseconds; "
        "ZooKeeper may set bounds. Apache Kafka's default with ZooKeeper was 18 s; with KRaft "
        "(broker.session.timeout.ms) it is 9 s.",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        Type.INT,
        None,
        minimum=1,
        doc="How long a starting broker waits for ZooKeeper, in milliseconds. Unset means "
        "zookeeper.session.timeout.ms.",
    )
    zookeeper_max_in_flight_requests: int = setting(
        Type.INT,
        10,
        minimum=1,
        doc="How many requests to ZooKeeper may be unanswered at once; at most 200 are.",
    )
    zookeeper_set_acl: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether only brokers may change the nodes that they make in ZooKeeper, and read passwords "
        "there. All brokers need the same zookeeper.digest for it.",
    )
    zookeeper_digest: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        doc="As whom ZooKeeper knows this broker, USER:PASSWORD (its scheme digest). Kafka has no such "
        "setting.",
    )
    zookeeper_ssl_client_enable: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether ZooKeeper is spoken to over TLS, at its secureClientPort.",
    )
    zookeeper_clientCnxnSocket: str | None = setting(
        Type.STRING,
        None,
        choices=("org.apache.zookeeper.ClientCnxnSocketNetty",),
        doc="What Kafka needs beside zookeeper.ssl.client.enable; here it may be left out.",
    )
    zookeeper_ssl_keystore_location: str | None = setting(
        Type.STRING,
        None,
        doc="The PEM file with the key and the certificate that this broker shows to ZooKeeper, if it asks "
        "for one.",
    )
    zookeeper_ssl_keystore_type: str = setting(Type.STRING, "PEM", choices=("PEM",), doc="Only PEM is read.")
    zookeeper_ssl_keystore_password: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        doc="The password of the private key in zookeeper.ssl.keystore.location.",
    )
    zookeeper_ssl_truststore_location: str | None = setting(
        Type.STRING,
        None,
        doc="The PEM file with the certificates that sign those of ZooKeeper. Unset means the system's.",
    )
    zookeeper_ssl_truststore_type: str = setting(
        Type.STRING,
        "PEM",
        doc="What zookeeper.ssl.truststore.location is: only PEM is read.",
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = setting(
        Type.LIST,
        ("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="The versions of TLS that ZooKeeper is spoken to in.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        Type.STRING,
        "HTTPS",
        choices=("HTTPS", "https", ""),
        doc="Whether ZooKeeper's certificate has to name the host in zookeeper.connect; empty switches the "
        "check off.",
    )
    broker_rack: str | None = setting(Type.STRING, None, doc="The rack of this broker.")

    # --- security ---
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        Type.LIST,
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
        doc="How clients may log in where a listener speaks SASL; PLAIN checks the same passwords as SCRAM. "
        "GSSAPI is Kerberos, and needs the extra gssapi.",
    )
    sasl_server_max_receive_size: int = setting(
        Type.INT,
        524_288,
        minimum=1,
        doc="The largest request that is read before a client has logged in, in bytes.",
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        Type.STRING,
        "SCRAM-SHA-512",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        doc="How this broker logs in to the others, where they reach each other by a listener with SASL.",
    )
    sasl_jaas_config: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        doc='As whom this broker logs in to the others: MODULE required username="..." password="...";. A '
        "user whom the cluster does not know is made.",
    )
    sasl_kerberos_service_name: str | None = setting(
        Type.STRING,
        None,
        update=Update.PER_BROKER,
        doc="The first part of the principal that clients of GSSAPI ask tickets for, usually kafka. The "
        "keytab is in sasl.jaas.config: "
        "com.sun.security.auth.module.Krb5LoginModule required keyTab=... principal=...; The broker uses "
        "another value from its next start on.",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        Type.LIST,
        ("DEFAULT",),
        update=Update.PER_BROKER,
        doc="What makes users of Kerberos principals, the first that fits: DEFAULT, which takes the "
        "first part where the realm is the system's own, and RULE:..., as Hadoop has them. The broker uses "
        "other rules from its next start on.",
    )
    sasl_kerberos_kinit_cmd: str = setting(
        Type.STRING, "/usr/bin/kinit", update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        Type.LONG, 60_000, update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    sasl_kerberos_ticket_renew_jitter: float = setting(
        Type.DOUBLE, 0.05, update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    sasl_kerberos_ticket_renew_window_factor: float = setting(
        Type.DOUBLE, 0.8, update=Update.PER_BROKER, doc=_NO_TICKETS
    )
    connections_max_reauth_ms: int = setting(
        Type.LONG,
        0,
        minimum=0,
        doc="How long a login holds, in milliseconds: clients log in again in time, or are disconnected at "
        "their next request. 0 means for ever. A login by a token ends with the token at the latest.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        Type.STRING,
        None,
        doc="Where the keys are that sign the tokens of OAUTHBEARER, as a JWKS: https://... of the identity "
        "provider, or file:///... on this machine.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        Type.LONG, 3_600_000, minimum=1000, doc="How often they are read again, in milliseconds."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        Type.LONG, 100, minimum=1, doc="How long to wait before they are asked for again after a failure."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        Type.LONG, 10_000, minimum=1, doc="The longest such wait, which doubles with each failure."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        Type.STRING, None, doc="The iss that a token must have, exactly."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        Type.LIST, (), doc="A token must have one of these as aud."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = setting(
        Type.BOOLEAN, False, doc="Whether tokens of any issuer are taken, where none is expected."
    )
    sasl_oauthbearer_allow_unverified_audience: bool = setting(
        Type.BOOLEAN, False, doc="Whether tokens for anybody are taken, where no audience is expected."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        Type.INT,
        30,
        minimum=0,
        doc="By how much the clocks of the identity provider and the broker may differ.",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        Type.STRING, "sub", doc="What of a token names the user, whom ACLs call User:NAME."
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        Type.STRING, "scope", doc="What of a token names its scopes: a string, or a list of strings."
    )
    barnabas_oauthbearer_unsigned: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether OAUTHBEARER takes tokens that nobody has signed, for tests: every listener with SASL "
        "must be on a loopback address. Kafka has no such setting.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        Type.INT,
        100,
        minimum=0,
        doc="How long a failed login is kept waiting for its answer, in milliseconds.",
    )
    ssl_keystore_type: str = setting(
        Type.STRING, "PEM", doc="The format of ssl.keystore.location: PEM or PKCS12; what the file is counts."
    )
    ssl_keystore_location: str | None = setting(
        Type.STRING,
        None,
        doc="The file with the broker's private key, its certificate and those that have signed it: PEM, or "
        "PKCS12.",
    )
    ssl_keystore_password: str | None = setting(
        Type.PASSWORD, None, sensitive=True, doc="The password of a PKCS12 keystore."
    )
    ssl_key_password: str | None = setting(
        Type.PASSWORD, None, sensitive=True, doc="The password of an encrypted private key."
    )
    ssl_keystore_key: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        doc="The broker's private key itself, as PEM (PKCS#8, encrypted or not), in place of "
        "ssl.keystore.location. Spaces may stand for line ends.",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        doc="The certificate of ssl.keystore.key and those that have signed it, as PEM.",
    )
    ssl_truststore_type: str = setting(
        Type.STRING,
        "PEM",
        doc="The format of ssl.truststore.location: PEM or PKCS12; what the file is counts.",
    )
    ssl_truststore_location: str | None = setting(
        Type.STRING,
        None,
        doc="The file with the certificates that clients' certificates must be signed by: PEM, or PKCS12.",
    )
    ssl_truststore_password: str | None = setting(
        Type.PASSWORD, None, sensitive=True, doc="The password of a PKCS12 truststore."
    )
    ssl_truststore_certificates: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        doc="The certificates that clients' must be signed by themselves, as PEM, in place of "
        "ssl.truststore.location.",
    )
    ssl_allow_dn_changes: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether a certificate may be replaced, while the broker runs, by one with another subject.",
    )
    ssl_allow_san_changes: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether a certificate may be replaced, while the broker runs, by one that lacks some of its "
        "alternative names.",
    )
    ssl_client_auth: str = setting(
        Type.STRING,
        "none",
        choices=("none", "requested", "required"),
        doc="Whether clients must, or may, show a certificate where a listener speaks TLS.",
    )
    ssl_principal_mapping_rules: str = setting(
        Type.STRING,
        "DEFAULT",
        doc="What a client is called that shows a certificate and does not log in: RULE:PATTERN/NAME/ turns "
        "a subject that PATTERN matches into NAME, where $1 is its first group (L or U at the end: in lower "
        "or upper case); DEFAULT is the subject itself. Several by commas; the first that fits holds.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Type.LIST,
        ("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="The versions of TLS that are spoken.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        Type.LIST,
        (),
        doc="The cipher suites of TLS 1.2, by OpenSSL's names; empty means OpenSSL's choice.",
    )

    delegation_token_secret_key: str | None = setting(
        Type.PASSWORD,
        None,
        sensitive=True,
        synonyms=("delegation.token.master.key",),
        doc="What the passwords of delegation tokens are made with: the same on all brokers. Unset means "
        "that there are no delegation tokens.",
    )
    delegation_token_master_key: str | None = setting(
        Type.PASSWORD, None, sensitive=True, doc="The old name of delegation.token.secret.key."
    )
    delegation_token_max_lifetime_ms: int = setting(
        Type.LONG,
        604_800_000,
        minimum=1,
        doc="How long a delegation token holds at most, however often it is renewed, in milliseconds.",
    )
    delegation_token_expiry_time_ms: int = setting(
        Type.LONG,
        86_400_000,
        minimum=1,
        doc="How long a delegation token holds until it has to be renewed, in milliseconds.",
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        Type.LONG,
        3_600_000,
        minimum=1,
        doc="How often delegation tokens that have expired are deleted, in milliseconds.",
    )

    authorizer_class_name: str | None = setting(
        Type.STRING,
        None,
        choices=(
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "kafka.security.authorizer.AclAuthorizer",
        ),
        doc="Whether ACLs decide what clients may do: either name of Kafka's own authorizers stands for "
        "Barnabas'. Unset means that everybody may do everything.",
    )
    super_users: str | None = setting(
        Type.STRING,
        None,
        doc="Who may do everything whatever the ACLs say: principals by semicolons, User:admin;User:ops. The "
        "brokers of a cluster have to be among them, or be allowed CLUSTER_ACTION.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether everybody may use a resource that no ACL is about.",
    )

    barnabas_audit_file: str | None = setting(
        Type.STRING,
        None,
        doc="The file of the audit log: logins, denials and changes, a JSON object a line. Unset means that "
        "there is none. Each broker needs its own.",
    )
    barnabas_audit_file_max_bytes: int = setting(
        Type.LONG,
        104_857_600,
        minimum=4_096,
        doc="An audit log that is larger is renamed, and another one begun.",
    )
    barnabas_audit_files: int = setting(
        Type.INT,
        10,
        minimum=0,
        maximum=1_000,
        doc="How many older audit logs are kept, as FILE.1, FILE.2 and so on.",
    )

    # --- connections ---
    socket_request_max_bytes: int = setting(
        Type.INT,
        104_857_600,
        minimum=1,
        doc="The largest request that is read, in bytes.",
    )
    socket_send_buffer_bytes: int = setting(
        Type.INT,
        102_400,
        minimum=-1,
        doc="SO_SNDBUF of each connection; -1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = setting(
        Type.INT,
        102_400,
        minimum=-1,
        doc="SO_RCVBUF of each connection; -1 leaves it to the system.",
    )
    socket_listen_backlog_size: int = setting(
        Type.INT,
        50,
        minimum=1,
        doc="How many connections may wait to be accepted.",
    )
    connections_max_idle_ms: int = setting(
        Type.LONG,
        600_000,
        minimum=-1,
        doc="How long an idle connection is kept open, in milliseconds; -1 means for ever.",
    )
    max_connections: int = setting(
        Type.INT,
        INT_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How many connections the broker takes.",
    )
    max_connections_per_ip: int = setting(
        Type.INT,
        INT_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How many connections the broker takes from one address.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        Type.LIST,
        (),
        items=(r"[0-9a-fA-F.:]+:[0-9]{1,9}", "write ADDRESS:COUNT, such as 192.0.2.7:100"),
        update=Update.CLUSTER_WIDE,
        doc="How many connections the broker takes from single addresses, ADDRESS:COUNT each; names are not "
        "looked up.",
    )
    max_connection_creation_rate: int = setting(
        Type.INT,
        INT_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How many connections may begin a second; more have to wait. Those by the listener of brokers "
        "do not wait if there are others.",
    )

    # --- quotas ---
    quota_window_num: int = setting(
        Type.INT, 11, minimum=2, doc="Over how many samples the use of clients is measured."
    )
    quota_window_size_seconds: int = setting(
        Type.INT, 1, minimum=1, doc="The length of each of these samples, in seconds."
    )
    controller_quota_window_num: int = setting(
        Type.INT, 11, minimum=1, doc="Over how many samples partitions made and deleted are counted."
    )
    controller_quota_window_size_seconds: int = setting(
        Type.INT, 1, minimum=1, doc="The length of each of these samples, in seconds."
    )

    # --- topics ---
    auto_create_topics_enable: bool = setting(
        Type.BOOLEAN,
        True,
        doc="Whether a request for a topic that does not exist creates it.",
    )
    delete_topic_enable: bool = setting(Type.BOOLEAN, True, doc="Whether topics may be deleted.")
    num_partitions: int = setting(
        Type.INT,
        1,
        minimum=1,
        doc="How many partitions a topic gets by default.",
    )
    default_replication_factor: int = setting(
        Type.INT,
        1,
        minimum=1,
        doc="How many replicas a partition gets by default.",
    )

    # --- replication ---
    auto_leader_rebalance_enable: bool = setting(
        Type.BOOLEAN,
        True,
        doc="Whether preferred leaders are elected by themselves where too many partitions have others.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        Type.LONG,
        300,
        minimum=1,
        maximum=INT_MAX,
        doc="How often the controller looks for partitions that their preferred leader does not lead.",
    )
    leader_imbalance_per_broker_percentage: int = setting(
        Type.INT,
        10,
        minimum=0,
        doc="How many percent of the partitions that a broker should lead may have another leader.",
    )
    leader_replication_throttled_rate: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How much a broker sends at most of its throttled replicas, in bytes a second.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How fast logs are copied from one log directory of a broker to another, in bytes a second.",
    )
    follower_replication_throttled_rate: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How much a broker fetches at most for its throttled replicas, in bytes a second.",
    )

    # --- fetch ---
    telemetry_max_bytes: int = setting(
        Type.INT,
        1_048_576,
        minimum=1,
        doc="The largest push of a client's metrics, in bytes, both as sent and decompressed (KIP-714). "
        "A larger one gets TELEMETRY_TOO_LARGE.",
    )
    fetch_max_bytes: int = setting(
        Type.INT,
        57_671_680,
        minimum=1024,
        doc="The largest answer to one fetch, in bytes.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Type.INT,
        1000,
        minimum=0,
        doc="How many fetch sessions (KIP-227) are kept.",
    )
    max_request_partition_size_limit: int = setting(
        Type.INT,
        2000,
        minimum=1,
        doc="How many partitions one DescribeTopicPartitions answer may hold.",
    )

    # --- the log: defaults for topics ---
    log_cleanup_policy: tuple[str, ...] = setting(
        Type.LIST,
        ("delete",),
        choices=("delete", "compact"),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's cleanup.policy.",
    )
    compression_type: str = setting(
        Type.STRING,
        "producer",
        choices=COMPRESSION_TYPES,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's compression.type.",
    )
    log_segment_delete_delay_ms: int = setting(
        Type.LONG,
        60_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's file.delete.delay.ms.",
    )
    log_flush_interval_messages: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's flush.messages.",
    )
    log_flush_interval_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=0,
        synonyms=("log.flush.scheduler.interval.ms",),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's flush.ms; unset, log.flush.scheduler.interval.ms.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        doc="The default of log.flush.interval.ms, in milliseconds.",
    )
    log_index_interval_bytes: int = setting(
        Type.INT,
        4096,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's index.interval.bytes.",
    )
    log_index_size_max_bytes: int = setting(
        Type.INT,
        10_485_760,
        minimum=4,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.index.bytes.",
    )
    message_max_bytes: int = setting(
        Type.INT,
        1_048_588,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's max.message.bytes.",
    )
    log_message_timestamp_after_max_ms: int = setting(
        Type.LONG,
        3_600_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's message.timestamp.after.max.ms.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's message.timestamp.before.max.ms.",
    )
    log_message_timestamp_type: str = setting(
        Type.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's message.timestamp.type.",
    )
    min_insync_replicas: int = setting(
        Type.INT,
        1,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's min.insync.replicas. The first controller stores its own for all "
        "brokers.",
    )
    unclean_leader_election_enable: bool = setting(
        Type.BOOLEAN,
        False,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's unclean.leader.election.enable.",
    )
    log_retention_bytes: int = setting(
        Type.LONG,
        -1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's retention.bytes.",
    )
    log_retention_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=-1,
        synonyms=("log.retention.minutes", "log.retention.hours"),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's retention.ms; unset, log.retention.minutes.",
    )
    log_retention_minutes: int | None = setting(
        Type.INT,
        None,
        doc="Retention in minutes; unset, log.retention.hours.",
    )
    log_retention_hours: int = setting(Type.INT, 168, doc="Retention in hours.")
    log_segment_bytes: int = setting(
        Type.INT,
        1_073_741_824,
        minimum=14,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.bytes.",
    )
    log_roll_jitter_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=0,
        synonyms=("log.roll.jitter.hours",),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.jitter.ms; unset, log.roll.jitter.hours.",
    )
    log_roll_jitter_hours: int = setting(Type.INT, 0, minimum=0, doc="Segment jitter in hours.")
    log_roll_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=1,
        synonyms=("log.roll.hours",),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.ms; unset, log.roll.hours.",
    )
    log_roll_hours: int = setting(Type.INT, 168, minimum=1, doc="A segment's greatest age in hours.")

    log_cleaner_delete_retention_ms: int = setting(
        Type.LONG,
        86_400_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's delete.retention.ms.",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's max.compaction.lag.ms.",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Type.DOUBLE,
        0.5,
        minimum=0,
        maximum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's min.cleanable.dirty.ratio.",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Type.LONG,
        0,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's min.compaction.lag.ms.",
    )

    # --- the log: compaction ---
    log_cleaner_enable: bool = setting(
        Type.BOOLEAN, True, doc="Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = setting(
        Type.INT,
        1,
        minimum=0,
        doc="How many logs are compacted at a time.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Type.LONG,
        134_217_728,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The memory for the keys of the logs being compacted, all together, in bytes.",
    )
    log_cleaner_io_buffer_size: int = setting(
        Type.INT,
        524_288,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The memory for reading and writing the logs being compacted, all together, in bytes.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Type.DOUBLE,
        DOUBLE_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How fast compaction may read and write, in bytes a second.",
    )
    log_cleaner_backoff_ms: int = setting(
        Type.LONG,
        15_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How long to wait when no log is dirty enough to compact, in milliseconds.",
    )

    # --- the log: upkeep ---
    log_retention_check_interval_ms: int = setting(
        Type.LONG,
        300_000,
        minimum=1,
        doc="How often retention is applied to the logs, in milliseconds.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        Type.INT,
        60_000,
        minimum=0,
        doc="How often the recovery points are stored, in milliseconds.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        Type.INT,
        60_000,
        minimum=0,
        doc="How often the log start offsets are stored, in milliseconds.",
    )
    replica_fetch_max_bytes: int = setting(
        Type.INT,
        1_048_576,
        minimum=0,
        doc="How much of a partition a follower asks for at once, in bytes; a larger batch is sent, too.",
    )
    replica_fetch_response_max_bytes: int = setting(
        Type.INT,
        10_485_760,
        minimum=0,
        doc="How much a follower asks for at once, in bytes; a larger batch is sent, too.",
    )
    replica_fetch_min_bytes: int = setting(
        Type.INT,
        1,
        doc="With how much the leader answers a follower before replica.fetch.wait.max.ms is up, in bytes.",
    )
    replica_fetch_wait_max_ms: int = setting(
        Type.INT,
        500,
        minimum=0,
        doc="How long a follower's fetch waits for records at the leader, in milliseconds.",
    )
    replica_fetch_backoff_ms: int = setting(
        Type.INT,
        1000,
        minimum=0,
        doc="How long a follower waits at most before it tries again, in milliseconds; it begins with less.",
    )
    replica_socket_timeout_ms: int = setting(
        Type.INT,
        30_000,
        minimum=1,
        doc="How long a follower waits for an answer, beyond replica.fetch.wait.max.ms, in milliseconds.",
    )
    replica_selector_class: str = setting(
        Type.STRING,
        "",
        choices=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        doc="Whether consumers are sent to a replica in their own rack (RackAwareReplicaSelector); "
        "else they read from leaders.",
    )
    controlled_shutdown_enable: bool = setting(
        Type.BOOLEAN, True, doc="Whether a broker that is stopped waits until others lead its partitions."
    )
    controlled_shutdown_max_retries: int = setting(
        Type.INT,
        3,
        minimum=0,
        doc="How many times controlled.shutdown.retry.backoff.ms a broker that is stopped waits for that at "
        "most.",
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        Type.LONG, 5000, minimum=0, doc="See controlled.shutdown.max.retries, in milliseconds."
    )
    replica_lag_time_max_ms: int = setting(
        Type.LONG,
        30_000,
        minimum=1,
        doc="How long a follower may not have caught up with its leader before it leaves the ISR, in "
        "milliseconds.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        Type.LONG,
        5000,
        minimum=1,
        doc="How often the high watermarks are stored, in milliseconds.",
    )
    num_recovery_threads_per_data_dir: int = setting(
        Type.INT,
        2,
        minimum=1,
        doc="How many threads read a data folder back after a crash.",
    )
    barnabas_acks_fsync: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether an acknowledged record (acks 1 and all) is fsynced first; requests share fsyncs.",
    )
    barnabas_metrics_listener: str | None = setting(
        Type.STRING,
        None,
        doc="Where metrics and health are served over HTTP, as HOST:PORT; port 0 takes a free one. Whoever "
        "reaches the address can read the names of topics and groups. Unset means nowhere.",
    )
    barnabas_slow_request_ms: int = setting(
        Type.INT,
        0,
        minimum=0,
        doc="A request that takes so long is logged, in milliseconds, unless it waits because its client or "
        "its group wants that. 0 means none is.",
    )
    producer_id_expiration_ms: int = setting(
        Type.INT,
        86_400_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How long the state of an inactive idempotent producer is kept, in milliseconds.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        Type.INT,
        600_000,
        minimum=1,
        doc="How often expired producer state is removed, in milliseconds.",
    )

    # --- groups ---
    group_initial_rebalance_delay_ms: int = setting(
        Type.INT,
        0,
        minimum=0,
        doc="How long an empty group waits for more members before its first round, in milliseconds.",
    )
    group_min_session_timeout_ms: int = setting(
        Type.INT,
        6000,
        minimum=0,
        doc="The shortest session timeout that a member may request, in milliseconds.",
    )
    group_max_session_timeout_ms: int = setting(
        Type.INT,
        1_800_000,
        minimum=0,
        doc="The longest session timeout that a member may request, in milliseconds.",
    )
    group_max_size: int = setting(
        Type.INT, INT_MAX, minimum=1, doc="How many members a classic group may have."
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Type.LIST,
        ("classic", "consumer"),
        choices=("classic", "consumer"),
        doc="By which protocols groups may be formed; classic has to be one of them.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Type.LIST,
        ("uniform", "range"),
        choices=("uniform", "range"),
        doc="The assignors of the consumer protocol; the first is the default for members that name none.",
    )
    group_consumer_migration_policy: str = setting(
        Type.STRING,
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Which way groups in use may change between the classic and the consumer protocol.",
    )
    barnabas_groups_per_principal: int = setting(
        Type.INT,
        10_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How many groups one principal may bring into being at a broker, where there are ACLs; super "
        "users may any number. Kafka has no such setting.",
    )
    barnabas_transactional_ids_per_principal: int = setting(
        Type.INT,
        10_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How many transactional ids one principal may bring into being at a broker, where there are "
        "ACLs; super users may any number. Kafka has no such setting.",
    )
    group_consumer_max_size: int = setting(
        Type.INT, INT_MAX, minimum=1, doc="How many members a group of the consumer protocol may have."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        Type.INT,
        5000,
        minimum=1,
        doc="How often members of the consumer protocol send heartbeats, in milliseconds.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        Type.INT,
        5000,
        minimum=1,
        doc="The shortest heartbeat interval a group may be given, in milliseconds.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        Type.INT,
        15_000,
        minimum=1,
        doc="The longest heartbeat interval a group may be given, in milliseconds.",
    )
    group_consumer_session_timeout_ms: int = setting(
        Type.INT,
        45_000,
        minimum=1,
        doc="How long a member of the consumer protocol may send no heartbeat, in milliseconds.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        Type.INT,
        45_000,
        minimum=1,
        doc="The shortest session timeout a group of the consumer protocol may be given, in milliseconds.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        Type.INT,
        60_000,
        minimum=1,
        doc="The longest session timeout a group of the consumer protocol may be given, in milliseconds.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        Type.INT,
        600_000,
        minimum=10_000,
        doc="How often at least regular expressions of subscriptions are resolved again, in milliseconds.",
    )
    offset_metadata_max_bytes: int = setting(
        Type.INT,
        4096,
        minimum=0,
        doc="How long the metadata of a committed offset may be, in bytes.",
    )
    offsets_commit_timeout_ms: int = setting(
        Type.INT,
        5000,
        minimum=1,
        doc="How long a commit may wait for its replicas, in milliseconds.",
    )
    offsets_retention_minutes: int = setting(
        Type.INT,
        10_080,
        minimum=1,
        doc="How long the offsets of an empty group are kept, in minutes.",
    )
    offsets_retention_check_interval_ms: int = setting(
        Type.LONG,
        600_000,
        minimum=1,
        doc="How often expired committed offsets are removed, in milliseconds.",
    )
    offsets_topic_num_partitions: int = setting(
        Type.INT,
        50,
        minimum=1,
        doc="The number of partitions of __consumer_offsets; it applies when that topic is created.",
    )
    offsets_topic_replication_factor: int | None = setting(
        Type.SHORT,
        None,
        minimum=1,
        doc="The replicas of __consumer_offsets. Unset means 3 with zookeeper.connect, else 1; while fewer "
        "brokers run, as many as there are, and the controller adds the others when they come.",
    )
    offsets_topic_segment_bytes: int = setting(
        Type.INT,
        104_857_600,
        minimum=1,
        doc="The segment size of __consumer_offsets, in bytes.",
    )

    # --- transactions ---
    transaction_max_timeout_ms: int = setting(
        Type.INT,
        900_000,
        minimum=1,
        doc="The longest transaction.timeout.ms that a producer may request.",
    )
    transactional_id_expiration_ms: int = setting(
        Type.INT,
        604_800_000,
        minimum=1,
        doc="How long a transactional id that nobody uses is remembered, in milliseconds.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Type.INT,
        10_000,
        minimum=1,
        doc="How often transactions that have exceeded their timeout are aborted, in milliseconds.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Type.INT,
        3_600_000,
        minimum=1,
        doc="How often expired transactional ids are removed, in milliseconds.",
    )
    transaction_partition_verification_enable: bool = setting(
        Type.BOOLEAN,
        True,
        update=Update.CLUSTER_WIDE,
        doc="Whether a write is checked to belong to an open transaction before it is taken (KIP-890).",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        Type.INT,
        20,
        minimum=1,
        doc="How long a write waits before it asks again whether the transaction before has ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        Type.INT,
        100,
        minimum=0,
        doc="How long a write waits at most for the transaction before to end, in milliseconds.",
    )
    transaction_state_log_num_partitions: int = setting(
        Type.INT,
        50,
        minimum=1,
        doc="The number of partitions of __transaction_state; it applies when that topic is created.",
    )
    transaction_state_log_replication_factor: int | None = setting(
        Type.SHORT,
        None,
        minimum=1,
        doc="The replicas of __transaction_state. Unset as for offsets.topic.replication.factor.",
    )
    transaction_state_log_min_isr: int | None = setting(
        Type.INT,
        None,
        minimum=1,
        doc="The min.insync.replicas of __transaction_state. Unset means 2 with zookeeper.connect, else 1.",
    )
    transaction_state_log_segment_bytes: int = setting(
        Type.INT,
        104_857_600,
        minimum=1,
        doc="The segment size of __transaction_state, in bytes.",
    )
    request_timeout_ms: int = setting(
        Type.INT,
        30_000,
        minimum=1,
        doc="How long one broker waits for another's answer, in milliseconds.",
    )
