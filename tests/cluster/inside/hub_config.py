"""A JupyterHub without a proxy in front (what would need Node.js): the hub and the servers it
starts as Slurm jobs are asked directly."""

import os

import batchspawner  # noqa: F401  it adds its own page to the hub
from jupyterhub.proxy import Proxy


class NoProxy(Proxy):
    routes = {}  # noqa: RUF012
    should_start = False

    async def add_route(self, routespec, target, data):
        self.routes[routespec] = {"routespec": routespec, "target": target, "data": data}

    async def delete_route(self, routespec):
        self.routes.pop(routespec, None)

    async def get_all_routes(self):
        return dict(self.routes)


c = get_config()  # noqa: F821
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.hub_port = 8081
c.JupyterHub.hub_connect_ip = "ctl"
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.db_url = "sqlite:////var/tmp/hub/hub.sqlite"
c.JupyterHub.cookie_secret_file = "/var/tmp/hub/cookie"
c.JupyterHub.spawner_class = "slurm_reclaim.jupyterhub.ReclaimSlurmSpawner"
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False  # the hub is restarted, its servers run on
c.JupyterHub.services = [{"name": "test", "api_token": "test-token-of-the-hub"}]
c.JupyterHub.load_roles = [
    {"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "tokens"]}
]
c.Authenticator.allow_all = True
# what the server tells the hub of its activity is 300 s apart by default
c.Spawner.environment = {"JUPYTERHUB_ACTIVITY_INTERVAL": "3"}
c.JupyterHub.activity_resolution = 1
c.Spawner.http_timeout = 120
c.Spawner.start_timeout = int(os.environ.get("START_TIMEOUT", "120"))
c.Spawner.poll_interval = 1
c.BatchSpawnerBase.exec_prefix = "runuser -u {username} --"
c.BatchSpawnerBase.batchspawner_singleuser_cmd = "/opt/jupyter/bin/batchspawner-singleuser"
c.Spawner.cmd = ["/opt/jupyter/bin/jupyterhub-singleuser"]
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=spawner-jupyterhub --mem=1500M --time=1:00:00 --reclaim=on
#SBATCH --output={{homedir}}/hub-%j.out --chdir={{homedir}} --export={{keepvars}}
export PATH=/opt/jupyter/bin:$PATH
exec {{cmd}}
"""
