"""Public addresses only, whatever they are dressed as; others by the operator's leave."""

from ipaddress import ip_address

import pytest

from lamplighter.core.addresses import Reach, literal

PUBLIC_ONLY = Reach()
ALL_OF_IT = Reach(private=True, loopback=True)

NEVER = [
    *("169.254.169.254", "169.254.170.2", "169.254.0.1"),  # link-local: metadata, credentials
    *("fe80::1", "fe80::1%eth0", "febf::1", "fd00:ec2::254", "fd00:ec2::23"),
    *("0.0.0.0", "0.1.2.3", "::"),
    *("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"),  # multicast
    *("240.0.0.1", "255.255.255.255"),
    *("192.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.10", "198.18.0.1", "192.88.99.1"),
    *("2001:db8::1", "3fff::1", "2001::1", "2001:20::1", "100::1", "4000::1", "fec0::1"),
    # 6to4 of 169.254.169.254, 10.0.0.1 and 8.8.8.8
    *("2002:a9fe:a9fe::1", "2002:a00:1::1", "2002:808:808::1"),
    # IPv4-compatible, and as clients of other kinds write it
    *("::7f00:1", "::a9fe:a9fe", "::ffff:0:a9fe:a9fe"),
    *("::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::ffff:0.0.0.0"),  # mapped
    *("64:ff9b::a9fe:a9fe", "64:ff9b::e000:1", "64:ff9b:1::808:808"),  # NAT64
]
PRIVATE = [
    *("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("100.64.0.1", "100.127.255.255", "fc00::1", "fd12:3456::1"),
    *("::ffff:10.0.0.1", "64:ff9b::a00:1"),
]
LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
PUBLIC = [
    *("8.8.8.8", "1.0.0.1", "11.0.0.1", "100.63.255.255", "100.128.0.1", "128.0.0.1"),
    *("169.253.255.255", "169.255.0.1", "172.15.255.255", "172.32.0.1", "192.167.255.255"),
    *("198.17.255.255", "198.20.0.1", "223.255.255.255"),
    *("2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "3ffe::1"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808"),
]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("reach", [PUBLIC_ONLY, ALL_OF_IT], ids=["public only", "all of it"])
def test_what_serves_credentials_or_is_not_one_host_is_never_reached(
    reach: Reach, address: str
) -> None:
    assert reach.refusal(ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_private_networks_are_reached_by_leave_alone(address: str) -> None:
    assert PUBLIC_ONLY.refusal(ip_address(address)) == "private"
    assert Reach(loopback=True).refusal(ip_address(address)) == "private"
    assert Reach(private=True).refusal(ip_address(address)) is None


@pytest.mark.parametrize("address", LOOPBACK)
def test_this_host_is_reached_by_leave_alone(address: str) -> None:
    assert PUBLIC_ONLY.refusal(ip_address(address)) == "this host itself"
    assert Reach(private=True).refusal(ip_address(address)) == "this host itself"
    assert Reach(loopback=True).refusal(ip_address(address)) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached(address: str) -> None:
    assert PUBLIC_ONLY.refusal(ip_address(address)) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:a9fe:a9fe]"])
def test_an_address_in_a_url_is_known(host: str) -> None:
    assert literal(host) is not None


@pytest.mark.parametrize("host", ["example.com", "2852039166", "0x7f.1", "127.1", "٣.1.1.1"])
def test_what_only_a_resolver_takes_for_an_address_is_none(host: str) -> None:
    assert literal(host) is None
