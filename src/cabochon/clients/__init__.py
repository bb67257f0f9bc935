"""Other runtimes, driven in child processes: what they did with a package, recorded."""

from cabochon.clients.probes import Client, Probe, Probes
from cabochon.clients.probing import probe, record

__all__ = ["Client", "Probe", "Probes", "probe", "record"]
