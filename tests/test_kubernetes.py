"""deploy/kubernetes: every manifest is valid for Kubernetes, and the manifests fit each other, the image and Dyno."""

import base64
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dyno.settings import Settings
from tests import containers, guides
from tests.test_deploy import SERVICES, VERSION

DEPLOY = Path(__file__).parent.parent / "deploy"
KINDS = ("cpu", "gpu", "tpu")
RENDERED = {"apiVersion", "kind", "resources", "namespace", "generatorOptions", "configMapGenerator"}
CLUSTER_WIDE = {"Namespace"}


def rendered(folder):
    """What `kubectl kustomize` prints for a folder that uses the fields RENDERED alone."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization.keys() <= RENDERED, folder
    for name in kustomization.get("resources", []):
        path = (folder / name).resolve()
        documents = rendered(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
        for document in documents:
            yield _in_namespace(document, kustomization)
    for generated in kustomization.get("configMapGenerator", []):
        assert kustomization["generatorOptions"] == {"disableNameSuffixHash": True}
        data = {name: (folder / name).read_text() for name in generated["files"]}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data}
        yield _in_namespace(document, kustomization)


def _in_namespace(document, kustomization):
    if "namespace" in kustomization and document["kind"] not in CLUSTER_WIDE:
        document["metadata"]["namespace"] = kustomization["namespace"]
    return document


DOCUMENTS = {kind: list(rendered(DEPLOY / "kubernetes" / kind)) for kind in KINDS}
PODS = {
    (kind, document["metadata"]["name"]): document
    for kind in KINDS
    for document in DOCUMENTS[kind]
    if document["kind"] in ("Deployment", "StatefulSet")
}
pods = pytest.mark.parametrize(("kind", "name"), PODS)


def pod_of(kind, name):
    return PODS[kind, name]["spec"]["template"]["spec"]


def container_of(kind, name):
    [container] = pod_of(kind, name)["containers"]
    return container


def named(kind, of):
    return {each["metadata"]["name"]: each for each in DOCUMENTS[kind] if each["kind"] == of}


def selected(kind, labels):
    """The names of the Deployments and StatefulSets whose pods have these labels."""
    found = {
        name: document["spec"]["template"]["metadata"]["labels"] for (of, name), document in PODS.items() if of == kind
    }
    return {name for name, own in found.items() if labels.items() <= own.items()}


def validate(document):
    import kubernetes_validate  # here, since its import takes a second

    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_document_is_valid_and_in_the_namespace(kind):
    documents = DOCUMENTS[kind]
    identities = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(identities) == len(set(identities))
    for document in documents:
        validate(document)
        assert document["kind"] in CLUSTER_WIDE or document["metadata"]["namespace"] == "dyno"


@pods
def test_every_pod_keeps_to_the_restricted_profile(kind, name):
    pod, container = pod_of(kind, name), container_of(kind, name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # a service's variables could be taken for settings
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any("hostPath" in volume for volume in pod["volumes"])


@pods
def test_every_pod_has_a_limit_of_memory_and_the_user_of_its_image(kind, name):
    container, service = container_of(kind, name), compose_service(name)
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    user = containers.user_of(service)
    context = pod_of(kind, name)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (*user, user[1])


def compose_service(name):
    return SERVICES[name.removeprefix("dyno-")]


@pods
def test_pods_run_the_images_and_commands_of_the_compose_file(kind, name):
    container, service = container_of(kind, name), containers.interpolated(compose_service(name))
    assert container["image"] == service["image"]
    assert container["command"] == service["command"]
    assert container["image"].startswith("redis:") or container["image"].endswith(f":{VERSION}")


@pods
def test_every_mount_has_a_volume_and_every_writable_folder_one(kind, name):
    pod, container = pod_of(kind, name), container_of(kind, name)
    claims = PODS[kind, name]["spec"].get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in mounted.values()} == volumes
    writable = {path for path, mount in mounted.items() if not mount.get("readOnly")}
    compose = {each.path for each in containers.mounts_of(compose_service(name)) if each.mode == "rw"}
    assert writable == compose | {"/tmp"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_outbox_is_a_folder_of_its_own_in_its_volume(kind):
    """Some provisioners let all users write in a volume's root folder, and a worker refuses such an outbox."""
    container = container_of(kind, f"dyno-worker-{kind}")
    [outbox] = [Path(each["value"]) for each in container["env"] if each["name"] == "DYNO_SPOOL_DIR"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} & set(map(str, outbox.parents))


@pods
def test_every_setting_exists(kind, name):
    names = {each["name"] for each in container_of(kind, name)["env"]}
    settings = {each for each in names if each.startswith("DYNO_")}
    assert settings <= {f"DYNO_{field.upper()}" for field in Settings.model_fields}
    assert not {each for each in names if re.search("PASSWORD$|SECRET$|KEY$", each)}, "secrets are files"


@pytest.mark.parametrize("kind", KINDS)
def test_each_part_gets_its_own_password_of_redis_alone(kind):
    [worker, *_] = [volume for volume in pod_of(kind, f"dyno-worker-{kind}")["volumes"] if "secret" in volume]
    assert worker["secret"]["secretName"] == "dyno-redis"
    assert worker["secret"]["items"] == [{"key": "worker-password", "path": "DYNO_REDIS_PASSWORD"}]
    [api] = [volume["projected"] for volume in pod_of(kind, "dyno-api")["volumes"] if "projected" in volume]
    [own, more] = [source["secret"] for source in api["sources"]]
    assert own == {"name": "dyno-redis", "items": [{"key": "api-password", "path": "DYNO_REDIS_PASSWORD"}]}
    assert more == {"name": "dyno-api", "optional": True}
    environment = {each["name"]: each["value"] for each in container_of(kind, "dyno-redis")["env"]}
    for role in ("api", "worker"):
        assert environment[f"REDIS_{role.upper()}_PASSWORD_FILE"].endswith(f"/{role}-password")


@pytest.mark.parametrize("kind", KINDS)
def test_services_and_budgets_find_their_pods_and_urls_their_services(kind):
    for name, budget in named(kind, "PodDisruptionBudget").items():
        assert selected(kind, budget["spec"]["selector"]["matchLabels"]) == {name}
    services = named(kind, "Service")
    for name, service in services.items():
        assert selected(kind, service["spec"]["selector"]) == {name}
        for port in service["spec"].get("ports", []):
            assert port["targetPort"] in {each["name"] for each in container_of(kind, name)["ports"]}
    for (of, name), document in PODS.items():
        if of == kind:
            assert document["spec"].get("serviceName", name) in services
            for host, port in re.findall(r"(dyno-\w+):(\d+)", str(container_of(kind, name)["env"])):
                assert int(port) in [each["port"] for each in services[host]["spec"]["ports"]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_admits_exactly_the_connections_that_dyno_makes(kind):
    policies = named(kind, "NetworkPolicy")
    deny = policies.pop("dyno-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    worker = f"dyno-worker-{kind}"
    egress = {edge for policy in policies.values() for edge in _edges(kind, policy["spec"], "egress")}
    ingress = {
        (source, target, port)
        for policy in policies.values()
        for target, source, port in _edges(kind, policy["spec"], "ingress")
    }
    expected = {("dyno-api", "dyno-redis", 6379), (worker, "dyno-redis", 6379)}
    everywhere = {(name, "kube-system", 53) for name in ("dyno-api", "dyno-redis", worker)}
    assert egress == expected | {(worker, "dyno-api", 8000)} | everywhere
    assert ingress == expected | {("everyone", "dyno-api", 8000)}


def _edges(kind, policy, direction):
    """(pod that the policy is for, other side, port)."""
    for rule in policy.get(direction, []):
        for peer in rule["to" if direction == "egress" else "from"]:
            own = selected(kind, policy["podSelector"].get("matchLabels", {}))
            for here in own:
                for there in _peers(kind, peer):
                    for port in rule["ports"]:
                        yield here, there, port["port"]


def _peers(kind, peer):
    if "podSelector" in peer:
        return selected(kind, peer["podSelector"]["matchLabels"])
    labels = peer["namespaceSelector"].get("matchLabels")
    return {labels["kubernetes.io/metadata.name"]} if labels else {"everyone"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_probes_of_the_api_pass_before_the_first_key_exists(kind):
    container = container_of(kind, "dyno-api")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")
        assert asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_may_use_whole_cores_and_is_alone_on_its_node(kind):
    name = f"dyno-worker-{kind}"
    resources = container_of(kind, name)["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"].isdigit()
    [term] = pod_of(kind, name)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert selected(kind, term["labelSelector"]["matchLabels"]) == {name}
    assert term["topologyKey"] == "kubernetes.io/hostname"


PAGE = guides.ROOT / "docs" / "deployment.md"


def kubectl(*words):
    """The documents that it prints. Skips the test if it is absent."""
    if (found := shutil.which("kubectl")) is None:
        pytest.skip("kubectl is not on this machine")
    done = subprocess.run([found, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def identity(document):
    return f"{document['kind']}/{document['metadata']['name']}"


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_builds_the_documents_that_these_tests_look_at(kind):
    built = kubectl("kustomize", DEPLOY / "kubernetes" / kind)
    assert sorted(built, key=identity) == sorted(DOCUMENTS[kind], key=identity)


def test_the_commands_of_the_guide_fit_the_manifests():
    """kubectl accepts them, without a cluster, and they name what the manifests have."""
    [block] = [block.text for block in guides.blocks(PAGE) if "kubectl" in block.text]
    namespace, secret, apply, first_key = block.replace("\\\n", " ").splitlines()
    [made] = yaml.safe_load_all((guides.ROOT / namespace.removeprefix("kubectl apply -f ")).read_text())
    assert identity(made) == "Namespace/dyno"
    words = shlex.split(re.sub(r"\$\(openssl rand -hex 24\)", "f00", secret))
    [found] = kubectl(*words[1:], "--dry-run=client", "-o", "yaml")
    assert found["metadata"] == {"name": "dyno-redis", "namespace": "dyno"} | found["metadata"]
    assert {name: base64.b64decode(value) for name, value in found["data"].items()} == dict.fromkeys(
        ("api-password", "worker-password"), b"f00"
    )
    pods = yaml.safe_dump([PODS["cpu", name]["spec"] for name in ("dyno-api", "dyno-redis", "dyno-worker-cpu")])
    assert set(re.findall(r"\b[a-z]+-password\b", pods)) == found["data"].keys()
    assert apply.startswith("kubectl apply -k deploy/kubernetes/")
    assert guides.ROOT / apply.removeprefix("kubectl apply -k ") == DEPLOY / "kubernetes" / "cpu"
    assert first_key.startswith("kubectl -n dyno exec deploy/dyno-api -- dyno keys create ")
    assert PODS["cpu", "dyno-api"]["kind"] == "Deployment"


def test_the_kustomization_of_the_guide_sets_registries_digests_and_replicas(tmp_path):
    [text] = re.findall(r"^```yaml\n(resources:.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "own").mkdir()
    (tmp_path / "dyno").symlink_to(guides.ROOT)
    digest = f"sha256:{'0' * 64}"
    (tmp_path / "own" / "kustomization.yaml").write_text(text.replace("sha256:…", digest))
    pods = {
        each["metadata"]["name"]: each["spec"]
        for each in kubectl("kustomize", tmp_path / "own")
        if each["kind"] in ("Deployment", "StatefulSet")
    }
    images = {name: spec["template"]["spec"]["containers"][0]["image"] for name, spec in pods.items()}
    assert images == {
        "dyno-redis": f"redis@{digest}",
        "dyno-api": f"registry.example.org/tensordyno-api@{digest}",
        "dyno-worker-cpu": f"registry.example.org/tensordyno-cpu@{digest}",
    }
    assert pods["dyno-worker-cpu"]["replicas"] == 3
