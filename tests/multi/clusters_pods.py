"""What Kubernetes does of a manifest, as far as ranks see it, on hosts made of namespaces: the Secret as the kubelet mounts it, the
variables in their order, names of pods that the DNS does not have until their pods run, a new pod under another address for one
that failed. `kubectl` of the test asks for it in files; the test runs it (Pods.serve).

usage: clusters_pods.py FOLDER KUBECTL-WORDS..."""
import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

GATEWAY = "10.91.7.1"
DOMAIN = "default.svc.cluster.local"
NAME_LATE_S, POD_LATE_S = 1.0, 0.5


# ---- kubectl: asks, and waits for the answer ------------------------------------


def kubectl(folder, words):
    if words[:3] == ["create", "secret", "generic"]:
        name, source = re.fullmatch(r"--from-file=([\w.-]+)=(.+)", words[4]).groups()
        with open(source, "rb") as f:
            asked = {"secret": words[3], "data": {name: base64.b64encode(f.read()).decode()}}
    elif words[:2] == ["apply", "-f"]:
        asked = {"apply": os.path.abspath(words[2])}
    elif words[0] == "wait":
        asked = {"wait": words[-1].split("/")[1], "seconds": 60 * int(re.search(r"--timeout=(\d+)m", " ".join(words))[1])}
    elif words[:2] == ["logs", "-l"]:
        asked = {"logs": dict(pair.split("=") for pair in words[2].split(","))}
    else:
        sys.exit(f"kubectl of the test does not have: {words}")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"{folder}/api")
        s.sendall(json.dumps(asked).encode() + b"\n")
        answer = json.loads(s.makefile().readline())
    print(answer["text"])
    sys.exit(answer["status"])


# ---- The DNS ---------------------------------------------------------------------


class Names(threading.Thread):
    """Answers for addresses (A) of the names that are there, to whom asks."""

    def __init__(self):
        super().__init__(daemon=True)
        self.address, self.asked_early = {}, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((GATEWAY, 53))
        self.start()

    def run(self):
        while True:
            asked, whom = self.socket.recvfrom(512)
            labels, at = [], 12
            while asked[at]:
                labels.append(asked[at + 1:at + 1 + asked[at]].decode())
                at += asked[at] + 1
            name, kind = ".".join(labels), asked[at + 2]
            known = self.address.get(name)
            self.asked_early += known is None and name.endswith(DOMAIN)
            answer = known is not None and kind == 1
            head = asked[:2] + bytes([0x85, 0x80 if known else 0x83, 0, 1, 0, answer]) + bytes(4)
            record = b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\4" + socket.inet_aton(known) if answer else b""
            self.socket.sendto(head + asked[12:at + 5] + record, whom)


# ---- The kubelet and the Job's controller ------------------------------------------


def expand(text, env):
    return re.sub(r"\$\(([A-Za-z_]\w*)\)", lambda m: env.get(m[1], m[0]), text)


def variables(container, annotations):
    """In the order of the manifest, each from those before it; the controller puts its own behind them."""
    field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    rows = container.get("env", []) + [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}}]
    env = {}
    for row in rows:
        path = row.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        m = re.fullmatch(r"metadata\.annotations\['(.+)'\]", path)
        env[row["name"]] = annotations.get(m[1], "") if m else expand(row["value"], env)
    return env


class Pods:
    """make_host(name, setup) makes a host for a pod, setup(its address) its lines of sh; change(job, index, tries) is the manifest
    of that pod."""

    def __init__(self, folder, names, make_host, build, change):
        self.folder, self.names, self.make_host, self.build, self.change = folder, names, make_host, build, change
        names.address.clear()
        self.secrets, self.services, self.done, self.logs = {}, set(), {}, {}
        self.tries, self.most_failures = [], None
        self.api = socket.socket(socket.AF_UNIX)
        self.api.bind(f"{folder}/api")
        self.api.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            s, _ = self.api.accept()
            threading.Thread(target=self.answer, args=(s,), daemon=True).start()

    def answer(self, s):
        asked = json.loads(s.makefile().readline())
        try:
            text, status = self.act(asked)
        except Exception as e:  # noqa: BLE001 - the one who asked says it
            text, status = repr(e), 1
        s.sendall(json.dumps({"text": text, "status": status}).encode() + b"\n")
        s.close()

    def act(self, asked):
        if "secret" in asked:
            self.secrets[asked["secret"]] = {k: base64.b64decode(v) for k, v in asked["data"].items()}
            return f"secret/{asked['secret']} created", 0
        if "apply" in asked:
            return self.apply(asked["apply"])
        if "wait" in asked:
            end = time.monotonic() + asked["seconds"]
            while asked["wait"] not in self.done and time.monotonic() < end:
                time.sleep(0.05)
            return (f"job.batch/{asked['wait']} condition met", 0) if self.done.get(asked["wait"]) else ("timed out or failed", 1)
        wanted = asked["logs"]
        return self.logs.get((wanted["batch.kubernetes.io/job-name"], int(wanted["batch.kubernetes.io/job-completion-index"])), "no such pod"), 0

    def apply(self, path):
        import yaml
        with open(path, encoding="utf-8") as f:
            objects = list(yaml.safe_load_all(f))
        self.services = {o["metadata"]["name"] for o in objects if o["kind"] == "Service" and o["spec"]["clusterIP"] == "None"}
        for job in (o for o in objects if o["kind"] == "Job"):
            threading.Thread(target=self.run, args=(job,), daemon=True).start()
        return "\n".join(f"{o['kind']}/{o['metadata']['name']} created" for o in objects), 0

    def run(self, job):
        """Until each index has succeeded, or as many pods have failed as the manifest allows. The first index starts last."""
        spec, name = job["spec"], job["metadata"]["name"]
        assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
        running = {i: None for i in reversed(range(spec["completions"]))}
        failures, tries = 0, dict.fromkeys(running, 0)
        most = spec["backoffLimit"] if self.most_failures is None else self.most_failures
        while running and failures <= most:
            for i in [i for i, p in running.items() if p is None]:
                running[i] = self.pod(self.change(job, i, tries[i]), i, tries[i])
                tries[i] += 1
                time.sleep(POD_LATE_S)
            for i, (p, host) in [(i, p) for i, p in running.items() if p and p[0].poll() is not None]:
                self.logs[name, i] = self.logs.get((name, i), "") * (p.returncode != 0) + p.communicate()[0]
                host.end()
                running[i] = None
                failures += p.returncode != 0
                if p.returncode == 0:
                    del running[i]
            time.sleep(0.05)
        for p, host in filter(None, running.values()):
            host.end()
        self.tries = [tries[i] for i in sorted(tries)]
        self.done[name] = not running

    def pod(self, job, index, tries):
        spec = job["spec"]["template"]["spec"]
        container, host_name = spec["containers"][0], f"{job['metadata']['name']}-{index}"
        env = variables(container, {"batch.kubernetes.io/job-completion-index": str(index)})
        who = spec.get("securityContext", {})
        host = self.make_host(host_name, lambda address: self.setup(spec, container, host_name, address, f"{self.folder}/{host_name}.{tries}"))
        if spec["subdomain"] in self.services:
            threading.Timer(NAME_LATE_S, self.names.address.__setitem__, (f"{host_name}.{spec['subdomain']}.{DOMAIN}", host.address)).start()
        words = [expand(w, env) for w in container["command"] + container.get("args", [])]
        user, group = who["runAsUser"], who["runAsGroup"]
        front = ["setpriv", "--reuid", str(user), "--regid", str(group), *(["--groups", str(who["fsGroup"])] if "fsGroup" in who else ["--clear-groups"]),
                 "--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all"]
        env = {**env, "PATH": "/mnt/tools:/mnt/bench:/mnt/examples:/usr/bin:/bin", "HOME": "/"}
        return subprocess.Popen(host.command(front + words), env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT), host

    def setup(self, spec, container, host_name, address, folder):
        """The container's files: an /etc of its own, and the Secret as links into a folder that is replaced at a change."""
        etc = f"{folder}/etc"
        lines = [f"mkdir -p {etc}", f"for f in passwd group nsswitch.conf ld.so.cache; do cp -L /etc/$f {etc}; done",
                 f"mount --bind {self.build} /mnt", f"mount --bind {etc} /etc",
                 f"printf 'search {DOMAIN} svc.cluster.local cluster.local\\nnameserver {GATEWAY}\\noptions ndots:5\\n' >/etc/resolv.conf",
                 f"printf '127.0.0.1 localhost\\n{address} {host_name}.{spec['subdomain']}.{DOMAIN} {host_name}\\n' >/etc/hosts"]
        for mount in container.get("volumeMounts", []):
            secret = next(v for v in spec["volumes"] if v["name"] == mount["name"])["secret"]
            at, mode, group = mount["mountPath"], secret.get("defaultMode", 0o644), spec.get("securityContext", {}).get("fsGroup")
            lines += [f"mkdir -p {at}", f"mount -t tmpfs tmpfs {at}", f"mkdir {at}/..2026_11_27", f"ln -s ..2026_11_27 {at}/..data"]
            for key, value in self.secrets[secret["secretName"]].items():
                file = f"{at}/..2026_11_27/{key}"
                lines += [f"printf %s {base64.b64encode(value).decode()} | base64 -d >{file}", f"ln -s ..data/{key} {at}/{key}",
                          f"chmod {mode:o} {file}", *([f"chgrp {group} {file} {at}", f"chmod g+r {file}"] if group else [])]
            lines += [f"mount -o remount,ro {at}"] * mount.get("readOnly", False)
        return lines


if __name__ == "__main__":
    kubectl(sys.argv[1], sys.argv[2:])
