"""The local adapter: carries out the plan with processes of this machine where Kubernetes would have pods."""
