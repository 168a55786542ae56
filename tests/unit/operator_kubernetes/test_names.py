from grpo_api.v1alpha1 import MAX_NAME
from grpo_operator.kubernetes import names


def test_every_child_of_the_longest_name_is_a_dns_label():
    job = "a" * MAX_NAME
    found = [
        names.reference(job),
        names.trainer(job),
        names.attempt(job, 9999),
        names.config(job),
        names.token(job),
        names.output(job),
    ]
    assert len(set(found)) == len(found)
    assert all(len(name) <= 63 for name in found)
    assert len(f"{names.attempt(job, 9999)}-4095") <= 63, "a pod's host name"
    # ReplicaSet and pod of the Deployment: a hash of ten characters and five random ones.
    assert len(f"{names.reference(job)}-0123456789-01234") <= 253
