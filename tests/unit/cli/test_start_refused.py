"""`barnabas start` with invalid settings: it does not start, and one line gives the reason."""

import pytest
from click.testing import CliRunner
from tests.slow import in_turn

from barnabas.broker.config import BrokerConfig, Type
from barnabas.broker.logs.manager import LogManager
from barnabas.cli.app import app


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Run `barnabas start`, which must not open anything. Return its line on stderr."""

    def never(*_arguments):
        pytest.fail("the broker went on to open its listeners and its data")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("barnabas.broker.server.network.listener.Listener.bind", never)
    monkeypatch.setattr(LogManager, "open", never)

    def run(*arguments, code=1):
        result = CliRunner().invoke(app, ["start", *map(str, arguments)], prog_name="barnabas")
        assert result.exit_code == code, (result.output, result.exception)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        line = result.stderr.splitlines()[-1]
        assert code == 2 or result.stderr == line + "\n"
        assert len(line) < 500
        return line

    return run


SECURE = [
    {"listeners": "SSL://127.0.0.1:0"},
    {"listeners": "SASL_SSL://127.0.0.1:0"},
    {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"},
    {"advertised.listeners": "SSL://127.0.0.1:0"},
    {"listeners": "CLIENTS://127.0.0.1:0", "listener.security.protocol.map": "CLIENTS:SASL_SSL"},
    {"listener.security.protocol.map": "PLAINTEXT:SSL"},
    {"listener.security.protocol.map": "plaintext:ssl"},
    {"security.inter.broker.protocol": "SSL"},
    {"ssl.keystore.location": "/etc/kafka/keystore.jks"},
    {"ssl.client.auth": "required"},
    {"sasl.enabled.mechanisms": "SCRAM-SHA-512"},
    {"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"},
    {"authorizer.class.name": "com.example.OurAuthorizer"},
    {"authorizer.class.name": ""},
    {"super.users": "User:admin"},
    {"allow.everyone.if.no.acl.found": "false"},
]


@pytest.mark.parametrize("settings", SECURE, ids=str)
@pytest.mark.parametrize("by", ["set", "properties", "toml"])
def test_what_asks_for_tls_sasl_or_acls_never_starts_open(refused, tmp_path, settings, by):
    if by == "set":
        line = refused(*(part for item in settings.items() for part in ("--set", "=".join(item))))
    elif by == "properties":
        (tmp_path / "f.properties").write_text("".join(f"{n}={v}\n" for n, v in settings.items()))
        line = refused("--config", "f.properties")
    else:
        (tmp_path / "f.toml").write_text("".join(f'"{n}" = "{v}"\n' for n, v in settings.items()))
        line = refused("--config", "f.toml")
    assert any(name in line for name in (*settings, "ssl.keystore.location"))


MALFORMED = ["", "=", "=5", "a", "no.such=1", "a b=1", "\0=1", f"{'x' * 5000}=1", "é=1", "node.id=1_0"]


@pytest.mark.parametrize("item", MALFORMED)
def test_a_set_that_is_unknown_or_malformed_is_refused_in_one_line(refused, item):
    name, equals, _ = item.partition("=")
    assert refused("--set", item, code=1 if name and equals else 2).isprintable()


UNFIT = ["nan", "9" * 5000, "\0", "\ud800"]
NAMES = [name for name, setting in BrokerConfig.declared.items() if setting.type is not Type.STRING]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_no_setting_takes_is_refused_in_one_line(refused, name, is_whole):
    unfit = UNFIT if is_whole else in_turn(UNFIT, NAMES.index(name), 1)
    if name == "log.dirs":
        unfit = [value for value in unfit if value != "nan"]  # a folder may be called so
    if name.startswith("delegation.token.") and name.endswith(".key"):
        unfit = ["\ud800"]  # any text may be the secret
    for value in unfit:
        line = refused("--set", f"{name}={value}")
        assert line.startswith(f"Error: {name}") or name == "listeners" or name == "log.dirs"
        assert line.isprintable()


@pytest.fixture
def secured(tmp_path):
    """The folder ``data`` has data that `--secure` has protected."""
    secure = tmp_path / "data" / "secure"
    secure.mkdir(parents=True)
    (secure / "admin.properties").write_text("")


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_data_made_secure_is_not_opened_by_leaving_out_the_flag(refused, secured, brokers):
    options = ("--data", "data", "--brokers", brokers)
    assert "start with --secure" in refused(*options)
    assert "start with --secure" in refused(*options, "--set", "listeners=PLAINTEXT://127.0.0.1:0")


@pytest.mark.parametrize("file", ["server.properties", "admin.properties"])
def test_a_cluster_made_secure_is_not_opened_by_leaving_out_the_flag(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("barnabas.cli.cluster.run.run", lambda *_: pytest.fail("it started"))
    (tmp_path / "data" / "secure").mkdir(parents=True)
    (tmp_path / "data" / "secure" / file).write_text("")
    result = CliRunner().invoke(app, ["cluster", "start", "--data", "data"], prog_name="barnabas")
    assert result.exit_code == 1
    assert "start with --secure" in result.stderr


def test_a_cluster_made_secure_is_opened_with_an_authorizer_of_the_user(secured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr("barnabas.cli.cluster.run.run", started.append)
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    options = ["cluster", "start", "--data", "data", "--set", authorizer]
    result = CliRunner().invoke(app, options, prog_name="barnabas", catch_exceptions=False)
    assert (len(started), result.exit_code) == (1, 0), result.output


@pytest.mark.parametrize("brokers", [1, 2])
def test_data_made_secure_is_opened_with_an_authorizer_of_the_user(secured, tmp_path, monkeypatch, brokers):
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr("barnabas.broker.server.run.run", lambda config, *_: started.append(1))
    monkeypatch.setattr(
        "barnabas.cli.start.machine.run", lambda folder, count, *_, **__: started.append(count)
    )
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    options = ["start", "--data", "data", "--brokers", str(brokers), "--set", authorizer]
    result = CliRunner().invoke(app, options, prog_name="barnabas", catch_exceptions=False)
    assert (started, result.exit_code) == ([brokers], 0), result.output


@pytest.mark.parametrize("option", ["--console", "--registry"])
def test_an_address_of_a_listener_is_refused(refused, option):
    line = refused("--listen", "127.0.0.1:9099", option, "9099", code=2)
    assert f"{option} 127.0.0.1:9099: the listener PLAINTEXT://127.0.0.1:9099 has this address, too" in line


def test_one_address_for_the_console_and_the_registry_is_refused(refused):
    line = refused("--listen", "127.0.0.1:0", "--console", "8089", "--registry", "8089", code=2)
    assert "--registry 127.0.0.1:8089: --console has this address, too" in line
