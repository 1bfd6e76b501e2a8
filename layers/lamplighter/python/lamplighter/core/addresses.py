"""Which addresses a target may be reached at: public ones, others only by the operator's leave.

Tables of our own, from IANA's registries of special-purpose addresses: what `ipaddress` calls
private or global has changed with patch releases of Python.
"""

from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(ip_network(text) for text in texts)


_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
# Where clouds answer with credentials. Inside fc00::/7, so it is looked at first.
_METADATA: Final = _networks("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32")
_PRIVATE: Final = _networks(
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    "100.64.0.0/10",  # shared by carriers, and a second range of many a VPC (RFC 6598)
    "fc00::/7",
)
_SPECIAL: Final = _networks(
    "0.0.0.0/8",  # this host
    "192.0.0.0/24",  # protocol assignments
    *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),  # documentation
    "192.88.99.0/24",  # relays of 6to4, deprecated
    "198.18.0.0/15",  # benchmarks
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, and broadcast
    "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
    *("2001:db8::/32", "3fff::/20"),  # documentation
    "2002::/16",  # 6to4: any IPv4 address, private ones too
)
# All that is public of IPv6 so far lies in here.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What may be reached beside public addresses."""

    private: bool = False
    loopback: bool = False

    def refusal(self, address: Address) -> str | None:
        """Why this address must not be reached; None: it may."""
        inner = _inside(address)
        if inner is not None:
            return self.refusal(inner)
        if _is_in(address, _METADATA):
            return "link-local, where credentials are served"
        if _is_in(address, _LOOPBACK):
            return None if self.loopback else "this host itself"
        if _is_in(address, _PRIVATE):
            return None if self.private else "private"
        is_public = isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST
        return None if is_public and not _is_in(address, _SPECIAL) else "not public"


def literal(host: str) -> Address | None:
    """The address that a host in a URL is, written as such; None: a name, or nothing known."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def _inside(address: Address) -> IPv4Address | None:
    """The IPv4 address that a packet to this one would reach."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _is_in(address: Address, networks: tuple[_Network, ...]) -> bool:
    return any(address in network for network in networks)
