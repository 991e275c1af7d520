"""The settings file that `barnabas users add` writes for a new user."""

from __future__ import annotations

import errno

import pytest

from barnabas.base.settings_file import read_unchecked
from barnabas.cli import user_file
from barnabas.cli.user_file import NoFileError, write_user_file
from barnabas.client.properties import translate

ADMIN = """\
bootstrap.servers=127.0.0.1:9093
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={authority}
ssl.keystore.location=admin.pem
ssl.key.password=of the admin
sasl.mechanism=scram-sha-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="r" password="x";
request.timeout.ms=5000
"""


@pytest.fixture
def admin(tmp_path, certificates):
    path = tmp_path / "admin.properties"
    path.write_text(ADMIN.format(authority=certificates.authority))
    return path


def test_a_user_gets_the_addresses_and_authorities_of_the_admin_and_none_of_its_secrets(admin, certificates):
    path = write_user_file(admin, "ana", "sesame")
    assert path == admin.with_name("ana.properties")
    settings = read_unchecked(path)
    login = settings.pop("sasl.jaas.config")
    assert settings == {
        "bootstrap.servers": "127.0.0.1:9093",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "sasl.mechanism": "SCRAM-SHA-256",
    }
    assert "ScramLoginModule" in login and '"r"' not in login
    assert path.stat().st_mode & 0o077 == 0, "only the owner reads it"


@pytest.mark.parametrize("password", ['quo"te', "back\\slash", "a = b # c !", "süß", "🔑", "tab\tnew\nline"])
def test_a_client_reads_the_password_that_was_given(admin, password):
    read = translate(read_unchecked(write_user_file(admin, "ana", password))).settings
    assert (read["sasl.username"], read["sasl.password"]) == ("ana", password)


def test_a_new_password_replaces_the_one_in_the_users_file(admin):
    write_user_file(admin, "ana", "old")
    path = write_user_file(admin, "ana", "new")
    assert translate(read_unchecked(path)).settings["sasl.password"] == "new"


@pytest.mark.parametrize("mechanism", ["", "sasl.mechanism=GSSAPI", "sasl.mechanism=OAUTHBEARER"])
def test_a_user_with_a_password_logs_in_by_scram_when_the_admin_does_not(admin, mechanism):
    admin.write_text(f"bootstrap.servers=127.0.0.1:9093\n{mechanism}\n")
    settings = read_unchecked(write_user_file(admin, "ana", "sesame"))
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"


@pytest.mark.parametrize("user", ["../ana", "a/b", "", ".ana", "ana\n", "ä", "x" * 65])
def test_a_name_that_is_no_file_name_is_refused(admin, user):
    with pytest.raises(NoFileError, match="cannot be the name of a file"):
        write_user_file(admin, user, "sesame")
    assert [*admin.parent.iterdir()] == [admin]


@pytest.mark.parametrize("text", ["notes of ana", ADMIN])
def test_a_file_of_something_else_stays_as_it_is(admin, text):
    path = admin.with_name("ana.properties")
    path.write_text(text)
    with pytest.raises(NoFileError, match="is not a file with the login of ana"):
        write_user_file(admin, "ana", "sesame")
    assert path.read_text() == text


def test_a_folder_that_takes_no_file_is_told(admin, monkeypatch):
    def refuse(path, content):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(user_file, "write_private", refuse)
    with pytest.raises(NoFileError, match=r"ana\.properties cannot be written: Read-only file system"):
        write_user_file(admin, "ana", "sesame")
