"""Redis over TLS, with users of its own, and by a socket."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from record_kit import BINARY, QUICK, new_head
from support.redis_fleets import CLI, Member

from router.errors import RecordNotFound, RecordUnavailable
from router.store.options import RedisOptions
from router.store.redis import RedisRecordStore

pytestmark = pytest.mark.redis


class Authority:
    """Issues certificates, each with its key in a PEM file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = self._write(name, self._sign(self._name, self._key, ca=True), self._key)

    def issue(self, name: str) -> Path:
        """A certificate for 127.0.0.1, and its key beside it (`.key`)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._write(name, self._sign(subject, key, ca=False), key)

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(here, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True, key_cert_sign=ca, crl_sign=ca,
                    content_commitment=False, key_encipherment=False, data_encipherment=False,
                    key_agreement=False, encipher_only=False, decipher_only=False,
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )  # fmt: skip

    def _write(self, name: str, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self._directory / f"{name}.pem"
        path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        path.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[Member]:
    if BINARY is None or not _speaks_tls():
        pytest.skip("no redis-server binary with TLS: TLS to Redis is not tested here")
    cert = authority.issue("server")
    server = Member(
        tmp_path / "server",
        *("--tls-cert-file", str(cert), "--tls-key-file", str(cert.with_suffix(".key"))),
        *("--tls-ca-cert-file", str(authority.path), "--unixsocket", str(tmp_path / "redis.sock")),
        *("--user", "router", "on", ">p@ss:/word", "~router*", "+@all", "--user", "default", "off"),
        tls=True,
    )
    server.start()
    yield server
    server.kill()


def _speaks_tls() -> bool:
    told = subprocess.run([CLI, "--help"], capture_output=True, check=False)
    return b"--tls" in told.stdout + told.stderr


USER = "router:p%40ss%3A%2Fword"


async def reach(url: str, options: RedisOptions) -> None:
    """A record goes there, and back."""
    store = RedisRecordStore(url, options=options, limits=QUICK)
    await store.start()
    head = new_head()
    store.open(head).commit("One.", at_chars=0)
    try:
        with contextlib.suppress(RecordNotFound):
            await store.load("stream-nobody")
        await store.flushed()
        assert (await store.load(head.stream_id)).text == "One."
    finally:
        await store.aclose()


async def test_a_server_known_by_its_authority(server: Member, authority: Authority) -> None:
    mine = authority.issue("router")
    options = RedisOptions(
        ca_file=str(authority.path), cert_file=str(mine), key_file=str(mine.with_suffix(".key"))
    )
    await reach(f"rediss://{USER}@127.0.0.1:{server.port}/3", options)


async def test_who_is_not_known_is_not_spoken_to(
    server: Member, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    mine, stranger = authority.issue("router"), Authority(tmp_path / "other", "stranger")
    own = RedisOptions(
        ca_file=str(authority.path), cert_file=str(mine), key_file=str(mine.with_suffix(".key"))
    )
    url = f"rediss://{USER}@127.0.0.1:{server.port}"
    for options, where in (
        (replace(own, ca_file=str(stranger.path)), url),  # it is not who we take it for
        (replace(own, ca_file=None), url),
        (replace(own, cert_file=None, key_file=None), url),  # we are not known to it
        (own, url.replace("127.0.0.1", "localhost")),  # its certificate is another host's
        (own, url.replace("rediss:", "redis:")),
        (own, url.replace("word", "wrong")),
        (own, url.replace(f"{USER}@", "")),
    ):
        with pytest.raises(RecordUnavailable) as caught:
            await reach(where, options)
        assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.usefixtures("server")
async def test_by_a_socket(tmp_path: Path) -> None:
    await reach(f"unix://{USER}@{tmp_path}/redis.sock?db=2", RedisOptions())
