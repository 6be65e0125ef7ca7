#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command as if every two ranks had a host of their own, whichever launcher started it.
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-$RANK}}}
HOROVOD_HOSTNAME=host$((rank / 2)) exec "$@"
