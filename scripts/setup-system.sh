#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages some tests use (network namespaces with an sshd each, a one-node Slurm, locales, Java
# for Spark, a browser for the dashboard). Without root or apt it says what is missing and succeeds: those tests then
# report themselves as skipped, with the reason.
missing=""
for pair in ip:iproute2 iperf3:iperf3 c++:g++ python3:python3 java:openjdk-17-jre-headless chromium:chromium; do
  command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
[ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
[ -e /usr/share/i18n/locales/tr_TR ] || missing="$missing locales"
[ -x /usr/sbin/slurmctld ] || missing="$missing slurm-wlm munge"
command -v ssh >/dev/null || missing="$missing openssh-client"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  if apt-get install -y -qq $missing >/dev/null 2>&1 \
     || { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq $missing >/dev/null 2>&1; }; then
    echo "setup-system: installed$missing"
    exit 0
  fi
fi
echo "setup-system: not installed:$missing (install them to run every test)"
exit 0
