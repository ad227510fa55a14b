"""A throw-away Slurm on this machine's loopback, for tests: Debian 12, slurm 22.05, without systemd.

Two nodes, 127.0.0.1 and 127.0.0.2, so that a node's name is its address; partition low may be preempted by
partition high. There is no database: `sacct` does not work, and nothing here needs it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
SBIN = Path("/usr/sbin")
NODES = ("127.0.0.1", "127.0.0.2")
START_SECONDS = STOP_SECONDS = 20

CONFIG = """\
ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
FirstJobId={first_job}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.sock,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,sched_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{options}
JobRequeue=1
KillWait=5
MinJobAge=600
InactiveLimit=0
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 State=UP PreemptMode=REQUEUE GraceTime=15
PartitionName=high Nodes=ALL PriorityTier=10 State=UP PreemptMode=OFF
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000"
# cred_expire: a requeued job waits until the credentials of its last start have expired (120 s by default).
# FirstJobId: job ids of two clusters should differ, since files are named after them.
# CommunicationParameters: nothing listens beyond loopback.


def missing() -> str:
    """Why no cluster can be started here; empty where one can."""
    absent = [name for name in DAEMONS if not (SBIN / name).exists()]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurmctld slurmd slurm-client munge"
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        return f"the host's name, {socket.gethostname()}, has no address"
    return "" if shutil.which("sbatch") else "no sbatch: apt-get install slurm-client"


@dataclass
class Cluster:
    """The cluster in a folder, which holds all of its files."""

    root: Path
    daemons: list[subprocess.Popen] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What its clients need."""
        return {"SLURM_CONF": str(self.root / "slurm.conf"), "GLOO_SOCKET_IFNAME": "lo"}

    def start(self, preempt_send_user_signal: bool = True) -> None:
        """Returns when all nodes are idle; raises RuntimeError with the ends of the logs where they are not."""
        self.root.mkdir(parents=True, exist_ok=True)
        for name in ("state", "spool"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "state").chmod(0o700)
        options = "SlurmctldParameters=preempt_send_user_signal" if preempt_send_user_signal else ""
        (self.root / "slurm.conf").write_text(self._config(options))
        self._start_munge()
        self._daemon("slurmctld", "-D")
        for name in NODES:
            (self.root / "spool" / name).mkdir(exist_ok=True)
            self._daemon("slurmd", "-D", "-N", name)
        if not wait_until(lambda: self._num_idle() == len(NODES), START_SECONDS):
            logs = "\n".join(
                f"{path.name}: {path.read_text()[-1000:]}"
                for path in self.root.glob("*.*")
                if path.suffix in {".log", ".out"}
            )
            self.stop()
            raise RuntimeError(f"slurm did not come up:\n{logs}")

    def stop(self) -> None:
        """Cancels what runs, then ends the daemons, and those alone, last started first."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.call("scancel", "--quiet", "--user", getpass.getuser())
            wait_until(lambda: not self.call("squeue", "--noheader"), STOP_SECONDS)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        wait_until(lambda: all(one.poll() is not None for one in self.daemons), STOP_SECONDS)
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()

    def call(self, *command: str) -> str:
        """What a client of it prints. Raises subprocess.CalledProcessError."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=30
        ).stdout

    def _config(self, options: str) -> str:
        port, *node_ports = free_ports(len(NODES) + 1)
        host = socket.gethostname().split(".")[0]
        nodes = zip(NODES, node_ports, strict=True)
        return CONFIG.format(
            host=host,
            port=port,
            nodes="\n".join(NODE.format(name=name, host=host, port=port) for name, port in nodes),
            first_job=random.randrange(1000, 30000, 100),
            user=getpass.getuser(),
            root=self.root,
            options=options,
        )

    def _start_munge(self) -> None:
        key, sock = self.root / "munge.key", self.root / "munge.sock"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        self._daemon(
            "munged",
            "-F",
            "--force",  # other users cannot reach the socket in a folder of pytest, and need not
            f"--key-file={key}",
            f"--socket={sock}",
            f"--pid-file={self.root}/munged.pid",
            f"--seed-file={self.root}/munged.seed",
            "--num-threads=2",
        )
        answers = ["munge", "-n", "-S", str(sock)]
        wait_until(
            lambda: subprocess.run(answers, check=False, capture_output=True).returncode == 0,
            START_SECONDS,
        )

    def _daemon(self, name: str, *arguments: str) -> None:
        """In a session of its own, so that Ctrl-C in the tests does not reach it."""
        with (self.root / f"{name}.{len(self.daemons)}.out").open("ab") as log:
            daemon = subprocess.Popen(
                [str(SBIN / name), *arguments],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.daemons.append(daemon)

    def _num_idle(self) -> int:
        try:
            return len(
                self.call("sinfo", "-h", "-N", "-p", "low", "-t", "idle", "-o", "%N").split()
            )
        except subprocess.SubprocessError:
            return 0


def wait_until(condition, seconds: float) -> bool:
    """Whether `condition` came true within `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return bool(found)


def free_ports(num: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(num)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
