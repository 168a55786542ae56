"""A Kubernetes control plane without a node: etcd, kube-apiserver, kube-controller-manager on loopback ports.

Enough for whatever talks to the API alone: CRDs with CEL, RBAC, quotas, server-side apply, watches, and the
controllers for namespaces, garbage collection, Jobs, Deployments and ServiceAccounts. Pods are created and
stay Pending: a test that needs one to run writes its status itself. Needs no root and no container; ready
within seconds; nothing is left when it ends, however it ends.

By hand: `python tools/cluster/control_plane.py` runs until Ctrl-C, `python tools/cluster/control_plane.py
COMMAND…` as long as COMMAND, with KUBECONFIG set and kubectl on the PATH.
"""

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFIX = "grpo-control-plane-"
HOST = "127.0.0.1"


class ControlPlaneError(RuntimeError):
    """A component did not start or ended by itself; the message ends with its log."""


def build_programs() -> Path:
    """Compile what is missing (minutes the first time, else under a second); return the programs' folder."""
    done = subprocess.run([HERE / "build.sh"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


class ControlPlane:
    """The running components; `kubeconfig` is an administrator's, `folder` holds all files, logs too."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.kubeconfig = folder / "admin.kubeconfig"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # The ports stay bound here, with SO_REUSEPORT, so that nobody else gets them before (or between)
        # the components' own listening on them.
        self._held = [_hold_port() for _ in range(3)]
        etcd, peer, api = (s.getsockname()[1] for s in self._held)
        self._api_port = api
        self._commands = _commands(programs, folder, etcd, peer, api)
        _make_keys(folder, api)

    def start(self, *names: str) -> None:
        """Start the components named (all by default), in order, and wait until the API answers."""
        for name in names or self._commands:
            if name == "kube-controller-manager":
                self.wait_until_ready()
            with (self.folder / f"{name}.log").open("ab") as log:
                # setpriv: should this process be killed, the kernel kills the component as well.
                self._processes[name] = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", *self._commands[name]],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        self.wait_until_ready()

    def stop(self, *names: str) -> None:
        """Kill the components named (all by default); `start` brings them back with their data."""
        for name in names or list(self._processes):
            process = self._processes.pop(name, None)
            if process is not None:
                process.kill()
                process.wait()

    def close(self) -> None:
        """Kill all components, give the ports back and delete the folder."""
        self.stop()
        for held in self._held:
            held.close()
        shutil.rmtree(self.folder)

    def wait_until_ready(self, timeout: float = 60) -> None:
        """Wait for /readyz, and for a first controller's work if the controller-manager runs.

        Raises ControlPlaneError when a component ends or `timeout` seconds have passed.
        """
        paths = ["/readyz"]
        if "kube-controller-manager" in self._processes:
            paths.append("/api/v1/namespaces/default/serviceaccounts/default")
        self._await(lambda: all(self._get(path) == http.client.OK for path in paths), timeout)

    def _get(self, path: str) -> int:
        """Return the HTTP status of a GET as administrator, 0 if nothing answers."""
        pki = self.folder / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        connection = http.client.HTTPSConnection(HOST, self._api_port, timeout=5, context=context)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def _await(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            ended = next((n for n, p in self._processes.items() if p.poll() is not None), None)
            if ended is not None:
                raise ControlPlaneError(f"{ended} ended:\n{self._tail(ended)}")
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {name}\n{self._tail(name)}" for name in self._processes)
                raise ControlPlaneError(f"the API is not ready after {timeout:.0f} s:\n{tails}")
            time.sleep(0.05)

    def _tail(self, name: str, lines: int = 20) -> str:
        log = (self.folder / f"{name}.log").read_text(errors="replace")
        return "\n".join(log.splitlines()[-lines:])


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Build what is missing, start all components, and end them on the way out."""
    programs = build_programs()
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    plane = ControlPlane(programs, folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.close()


def _hold_port() -> socket.socket:
    """Bind a free loopback port without listening on it; a process of the same user may listen on it too."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((HOST, 0))
    return held


def sweep() -> None:
    """Delete the folders of runs that were killed (their processes died with them)."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        match = re.fullmatch(rf"{PREFIX}(\d+)-\w+", folder.name)
        if match and not Path("/proc", match[1]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _make_keys(folder: Path, api_port: int) -> None:
    environment = os.environ | {
        "CLUSTER_STATE": str(folder),
        "CLUSTER_PORT": str(api_port),
        "API_SERVER": f"https://{HOST}:{api_port}",
    }
    done = subprocess.run([HERE / "pki.sh"], env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ControlPlaneError(f"pki.sh failed:\n{done.stderr}")


def _commands(programs: Path, folder: Path, etcd: int, peer: int, api: int) -> dict[str, list[str]]:
    """The command line of each component, in starting order, for the ports given."""
    pki = folder / "pki"
    return {
        "etcd": [
            str(programs / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--socket-reuse-port",
            "--log-level=warn",
            f"--listen-client-urls=http://{HOST}:{etcd}",
            f"--advertise-client-urls=http://{HOST}:{etcd}",
            f"--listen-peer-urls=http://{HOST}:{peer}",
            f"--initial-advertise-peer-urls=http://{HOST}:{peer}",
            f"--initial-cluster=default=http://{HOST}:{peer}",
        ],
        "kube-apiserver": [
            str(programs / "kube-apiserver"),
            f"--etcd-servers=http://{HOST}:{etcd}",
            f"--bind-address={HOST}",
            f"--secure-port={api}",
            "--permit-port-sharing",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
        ],
        "kube-controller-manager": [
            str(programs / "kube-controller-manager"),
            f"--kubeconfig={folder / 'kube-controller-manager.kubeconfig'}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            # No kubelet renews a Node's lease: Nodes that tests make by hand must not be tainted for it.
            "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
            # The default rates delay a burst of work by seconds.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
    }


def main() -> int:
    """Run the control plane for a command, or until a signal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    try:
        with control_plane() as plane:
            print(f"ready after {time.monotonic() - started:.1f} s, logs in {plane.folder}", file=sys.stderr)
            if len(sys.argv) > 1:
                path = f"{plane.programs}:{os.environ['PATH']}"
                environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig), "PATH": path}
                return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
            print(f"export KUBECONFIG={plane.kubeconfig} PATH={plane.programs}:$PATH", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
