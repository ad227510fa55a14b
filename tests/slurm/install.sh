#!/usr/bin/env bash
# Installs what tests/slurm needs, where it can: root on Debian or Ubuntu. Elsewhere the tests say what is missing.
set -euo pipefail
if [ -x /usr/sbin/slurmctld ] && [ -x /usr/sbin/slurmd ] && [ -x /usr/sbin/munged ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Slurm is not installed, and only root can, with apt-get: its tests are skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
{ apt-get update && apt-get install --yes --no-install-recommends slurmctld slurmd slurm-client munge; } >/dev/null ||
    echo "Slurm could not be installed: its tests are skipped" >&2
