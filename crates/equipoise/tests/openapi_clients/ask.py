"""Sends requests to a running equipoise with a generated client: ask.py URL TOKEN. The package `client` is generated."""

import sys

from client import AuthenticatedClient
from client.api.config import get_config_schema, post_config_check
from client.api.health import get_health
from client.api.openapi_json import get_openapi_json
from client.api.plan import get_plan
from client.api.pools import (
    get_pools_pool_backends_backend,
    post_pools_pool_backends_backend_drain,
    post_pools_pool_backends_backend_undrain,
    put_pools_pool_backends_backend_weight,
)
from client.api.status import get_status
from client.models import Changed, CheckConfig, Checked, Liveness, Problem, SetWeight, Status


def expect(kind, answer):
    assert isinstance(answer, kind), f"{kind.__name__} expected: {answer}"
    return answer


def main():
    url, token = sys.argv[1:]
    client = AuthenticatedClient(base_url=url, token=token, timeout=60)

    health = expect(Liveness, get_health.sync(client=client))
    assert health.phase == "running", health
    status = expect(Status, get_status.sync(client=client))
    assert [pool.name for pool in status.pools] == ["web"], status

    backend = ("web", "b1")
    changed = post_pools_pool_backends_backend_drain.sync(*backend, client=client)
    expect(Changed, changed)
    read = get_pools_pool_backends_backend.sync(*backend, client=client)
    assert expect(Changed, read).backend.admin == "drain", read
    expect(Changed, post_pools_pool_backends_backend_undrain.sync(*backend, client=client))
    weight = SetWeight(weight=7)
    changed = put_pools_pool_backends_backend_weight.sync(*backend, client=client, body=weight)
    assert expect(Changed, changed).backend.weight == 7, changed

    missing = post_pools_pool_backends_backend_drain.sync("web", "nothere", client=client)
    assert expect(Problem, missing).status == 404, missing
    expect(Problem, get_plan.sync(client=client))
    checked = post_config_check.sync(client=client, body=CheckConfig(toml="nonsense"))
    assert not expect(Checked, checked).valid, checked

    # The description has no more about these documents than that they are objects.
    assert get_config_schema.sync(client=client).to_dict()["type"] == "object"
    assert get_openapi_json.sync(client=client).to_dict()["openapi"].startswith("3.1")
    print("asked")


main()
