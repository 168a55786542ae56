"""The name of every child, spelled once. The longest fits a DNS label for a job's name of MAX_NAME characters."""


def reference(job: str) -> str:
    """Deployment, Service and NetworkPolicy of the reference server."""
    return f"{job}-reference"


def trainer(job: str) -> str:
    """Headless Service and NetworkPolicy of the trainer."""
    return f"{job}-trainer"


def attempt(job: str, number: int) -> str:
    """Indexed Job of one attempt; its pods' host names are this with `-<index>`."""
    return f"{trainer(job)}-{number}"


def config(job: str) -> str:
    """ConfigMap with the job's configuration."""
    return f"{job}-config"


def token(job: str) -> str:
    """Secret with the bearer token between the job's pods."""
    return f"{job}-token"


def output(job: str) -> str:
    """PersistentVolumeClaim made for the job."""
    return f"{job}-output"
