"""A real Slurm cluster on one machine: each node is a set of namespaces on a Debian 13 root.

Where things are:

    cli            the commands
    cluster        up, down, install, status: the order in which things happen
    places         directories; names of nodes and their addresses
    image          base root, Jupyter and dependency layers; built by `layers` in `build_root`
    host_apt       which mirror and apt settings this machine uses
    host_pip       which pip settings and certificates this machine uses
    checkout       the files of this working tree
    install        this checkout installed the way docs/install.md says
    slurm_files    Slurm's configuration
    node_tree      everything laid over the image, sent into a node
    network        bridge and network namespaces
    cgroups        every node's own place in each hierarchy
    node           one node: boot, kill, enter
    node_boot      what becomes a node's init
    daemons        which daemons run where, start and stop
    units          the project's systemd units, read and obeyed without systemd
    ssh            logins on compute nodes through pam_slurm_adopt
    accounting     clusters, accounts and users in slurmdbd
"""
