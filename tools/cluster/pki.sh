#!/bin/bash
# pki.sh: make the keys, certificates and kubeconfig files of one control plane in $CLUSTER_STATE. Its
# components reach the API server at $API_SERVER, the user at 127.0.0.1:$CLUSTER_PORT. Elliptic-curve keys:
# all of it takes well under a second.
set -euo pipefail
. "$(dirname "$0")/env.sh"
: "${API_SERVER:=https://$NODE_IP:6443}"
mkdir -p "$PKI"
cd "$PKI"
umask 077
days=30

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
key ca.key
openssl req -x509 -new -key ca.key -subj /CN=cluster-ca -days $days -out ca.crt \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
key sa.key
openssl ec -in sa.key -pubout -out sa.pub 2> /dev/null

cert() { # cert NAME SUBJECT USAGE [SAN]
  key "$1.key"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days $days -out "$1.crt" \
    -extfile <(printf 'keyUsage=digitalSignature\nextendedKeyUsage=%s\n%s\n' "$3" "${4:+subjectAltName=$4}") 2> /dev/null
  rm "$1.csr"
}
names=DNS:localhost,IP:127.0.0.1,IP:$API_SERVICE_IP,IP:$NODE_IP
for n in kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local; do
  names=$names,DNS:$n
done
cert apiserver /CN=kube-apiserver serverAuth "$names"
cert kubelet-server "/CN=$NODE_NAME" serverAuth "DNS:$NODE_NAME,IP:$NODE_IP,IP:127.0.0.1"
cert apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth

kubeconfig() { # kubeconfig NAME SUBJECT SERVER
  cert "$1" "$2" clientAuth
  cat > "$CLUSTER_STATE/$1.kubeconfig" << K
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$3", certificate-authority-data: $(base64 -w0 < ca.crt)}}]
users: [{name: "$1", user: {client-certificate-data: $(base64 -w0 < "$1.crt"), client-key-data: $(base64 -w0 < "$1.key")}}]
contexts: [{name: test, context: {cluster: test, user: "$1"}}]
current-context: test
K
}
kubeconfig admin /O=system:masters/CN=admin "https://127.0.0.1:$CLUSTER_PORT"
kubeconfig kube-controller-manager /CN=system:kube-controller-manager "$API_SERVER"
kubeconfig kube-scheduler /CN=system:kube-scheduler "$API_SERVER"
kubeconfig kube-proxy /CN=system:kube-proxy "$API_SERVER"
kubeconfig netpol /CN=netpol "$API_SERVER"
kubeconfig kubelet "/O=system:nodes/CN=system:node:$NODE_NAME" "$API_SERVER"
