"""From a local port to a port on the compute node: routes, the connection to the node, and forwarding.

Connections to login nodes are in ``hosts``.
May import: core, hosts, schedulers, session.
"""
