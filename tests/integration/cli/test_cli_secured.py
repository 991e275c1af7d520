"""Commands that log in, with a file of client settings, a profile or a user name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.certificates import Certificates

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.cli.app import app
from barnabas.client import Admin, Producer
from barnabas.client.servers import Servers

PASSWORD = "wonder; land"


@pytest.fixture(scope="module")
def address(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a broker that requires TLS and a login, with ACLs for the user alice. Return its address."""
    config = {
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.server),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    server = BrokerServer(BrokerConfig.from_text(config))
    server.start()
    try:
        plain, secured = (endpoint.address for endpoint in server.bound)
        Admin(plain).set_password("alice", PASSWORD)
        yield secured
    finally:
        server.stop()


@pytest.fixture
def file(tmp_path: Path, address: str, certificates: Certificates) -> Path:
    """Write a file of client settings as Java's clients use it. Return its path."""
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={address}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="alice" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.authority}\nacks=all\n"
    )
    return path


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)

    def run(*words: object, code: int = 0, stdin: str | None = None, **environment: str) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin, env=environment)
        assert result.exit_code == code, (result.output, result.exception)
        assert PASSWORD not in result.output
        return result

    return run


def test_every_kind_of_command_takes_the_file(run: Run, file: Path) -> None:
    topics = map("t{}".format, itertools.count())
    topic = next(topics)
    run("topics", "create", topic, "--command-config", file)
    run("produce", topic, "--config", file, stdin="apples\n")
    assert "apples" in run("consume", topic, "--until-end", "--config", file).stdout
    run("topics", "alter", topic, "--partitions", 2, "--command-config", file)
    for words in (
        ("topics", "list"),
        ("topics", "describe", topic, "--json"),
        ("configs", "describe", "--topic", topic),
        ("configs", "describe", "--broker-defaults"),
        ("groups", "list"),
        ("transactions", "list"),
        ("brokers", "list"),
        ("brokers", "describe", 1),
        ("topics", "reassign", "list"),
        ("users", "list"),
    ):
        run(*words, "--config", file)
    assert (
        "ignored settings that do not concern connections: acks"
        in run("topics", "list", "--config", file).stderr
    )


def test_a_group_is_read_and_its_offsets_are_shown(run: Run, file: Path) -> None:
    run("topics", "create", "grouped", "--command-config", file)
    run("produce", "grouped", "--config", file, stdin="one\n")
    run("consume", "grouped", "--group", "g", "--from-beginning", "--max-messages", 1, "--config", file)
    assert '"lag": 0' in run("groups", "describe", "g", "--json", "--config", file).stdout


def test_lines_are_shipped(run: Run, file: Path, tmp_path: Path) -> None:
    lines = tmp_path / "app.log"
    lines.write_text("a line\n")
    run("ship", lines, "--topic", "shipped", "--once", "--state", tmp_path / "state", "--config", file)
    assert "a line" in run("consume", "shipped", "--until-end", "--config", file).stdout


def test_the_environment_names_the_file(run: Run, file: Path) -> None:
    run("topics", "list", BARNABAS_CONFIG=str(file))
    # the file's addresses are nearer than the environment's
    run("topics", "list", "--config", file, BARNABAS_BOOTSTRAP_SERVER="127.0.0.1:1")
    run("topics", "list", "--config", file, "-b", "127.0.0.1:1", code=1)


def test_a_profile_is_a_table_of_one_file(run: Run, file: Path, tmp_path: Path, address: str) -> None:
    folder = tmp_path / "barnabas"
    folder.mkdir()
    (folder / "profiles.toml").write_text(
        f'[test]\nbootstrap.servers = "{address}"\nsecurity.protocol = "SASL_SSL"\n'
        f'sasl.mechanism = "SCRAM-SHA-256"\nsasl.username = "alice"\nsasl.password = "{PASSWORD}"\n'
        f'ssl.ca.location = "{_trust(file)}"\n'
    )
    run("topics", "list", "--profile", "test", XDG_CONFIG_HOME=str(tmp_path))
    missing = run("topics", "list", "--profile", "prod", code=2, XDG_CONFIG_HOME=str(tmp_path))
    assert "there is no profile prod" in missing.stderr and "it has test" in missing.stderr


def test_a_user_is_named_and_the_password_comes_from_the_environment(run: Run, file: Path) -> None:
    refused = run("topics", "list", "--config", file, "--user", "bob", code=1, BARNABAS_PASSWORD="guess")
    assert "rejects the login by SCRAM-SHA-512" in refused.stderr and "guess" not in refused.stderr
    run("topics", "list", "--config", file, "--user", "alice", BARNABAS_PASSWORD=PASSWORD)
    assert "set BARNABAS_PASSWORD" in run("topics", "list", "--config", file, "--user", "bob", code=1).stderr


def test_mistrust_is_told_in_one_line(run: Run, file: Path, certificates: Certificates) -> None:
    text = file.read_text()
    file.write_text(text.replace(_trust(file), str(certificates.stranger)))
    assert "is not trusted" in run("topics", "list", "--config", file, code=1).stderr
    file.write_text(text.replace("SASL_SSL", "SASL_PLAINTEXT"))
    assert "TLS" in run("topics", "list", "--config", file, code=1).stderr
    file.write_text(text.replace("security.protocol", "security.protocoll"))
    told = run("topics", "list", "--config", file, code=2).stderr
    assert "did you mean security.protocol?" in told and str(file) in told


def test_python_clients_take_settings_by_keyword(file: Path, address: str) -> None:
    settings = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
        "ssl_ca_location": _trust(file),
    }
    admin = Admin(address, **settings)
    (stored,) = admin.configs("broker", "")  # by a connection of our own
    assert stored.name == "min.insync.replicas"
    with Producer(address, **settings) as producer:
        producer.send("by-keyword", b"x")


def test_servers_show_no_secret(file: Path, address: str) -> None:
    servers = Servers(address, {"sasl.password": PASSWORD})
    assert PASSWORD not in f"{servers} {servers!r}"


def _trust(file: Path) -> str:
    return file.read_text().partition("ssl.truststore.location=")[2].partition("\n")[0]


@pytest.mark.parametrize("password", ["looking-glass", 'quo"te \\ and ümläut 🐛'])
def test_a_user_who_is_added_gets_a_file_that_works(run: Run, file: Path, password: str) -> None:
    (file.parent / "password").write_text(password + "\n")
    told = run("users", "add", "bob", "--password-file", file.parent / "password", "--config", file).stdout
    bobs = file.with_name("bob.properties")
    assert told.splitlines() == ["bob can log in", f"  try         barnabas topics list --config {bobs}"]
    assert bobs.stat().st_mode & 0o777 == 0o600
    assert bobs.read_text().isascii()
    run("topics", "list", "--config", bobs)
    (file.parent / "password").write_text("another\n")
    run("users", "add", "bob", "--password-file", file.parent / "password", "--config", file)
    run("topics", "list", "--config", bobs)


def test_a_file_of_another_is_not_replaced_by_that_of_a_new_user(run: Run, file: Path) -> None:
    (file.parent / "password").write_text("looking-glass\n")
    before = file.read_text()
    for user, words in (
        ("client", "is not a file with the login of client"),
        ("../bob", "cannot be the name of a file"),
    ):
        ended = run("users", "add", user, "--password-file", file.parent / "password", "--config", file)
        assert words in ended.stderr
        assert f"{user} can log in" in ended.stdout
    run("users", "add", "bob", "--no-file", "--password-file", file.parent / "password", "--config", file)
    assert file.read_text() == before
    assert not list(file.parent.rglob("bob.properties"))


def test_a_user_who_is_added_without_a_file_of_the_admins_gets_none(
    run: Run, address: str, file: Path
) -> None:
    (file.parent / "password").write_text("looking-glass\n")
    command = ("users", "add", "carol", "--password-file", file.parent / "password")
    told = run(*command, "-b", address, "--profile", "p", XDG_CONFIG_HOME=str(_profiles(file))).stdout
    assert told == "carol can log in\n"


def _profiles(file: Path) -> Path:
    """Return a configuration folder whose profile p has the admin's settings."""
    folder = file.parent / "configuration" / "barnabas"
    folder.mkdir(parents=True)
    lines = file.read_text().replace("\\\n", " ").splitlines()
    entries = [f"'{name}' = '{value}'" for name, _, value in (line.partition("=") for line in lines)]
    (folder / "profiles.toml").write_text("\n".join(["[p]", *entries]) + "\n")
    return folder.parent
