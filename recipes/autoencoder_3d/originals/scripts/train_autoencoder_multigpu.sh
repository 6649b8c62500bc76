#!/bin/sh
# 3d_ldm's launcher: same four words, none of them needed; more than one GPU are as many ranks. Environment variables of a launcher go through untouched.
gpus=${1:-2}
config=${2:-./config/config_train_32g.json}
amp=${3:-false}
compile=${4:-false}
if [ $# -gt 4 ]; then
  echo "usage: $0 [gpus] [config file] [amp: true|false] [compile: true|false]" >&2
  exit 2
fi
set -- train autoencoder_3d --environment-file ./config/environment.json --config-file "$config" --gpus "$gpus"
case $amp in
  true) set -- "$@" --amp ;;
  *) set -- "$@" --no-amp ;;
esac
case $compile in
  true) set -- "$@" --compile ;;
esac
if [ "$gpus" -gt 1 ] 2>/dev/null; then
  set -- launch --nproc "$gpus" "$@"
fi
echo "runs: ${MILLRACE:-millrace} $*"
exec "${MILLRACE:-millrace}" "$@"
