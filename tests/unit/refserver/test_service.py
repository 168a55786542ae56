"""What a request is told that HTTP's routes do not decide."""


def test_a_deadline_that_has_passed_is_told_as_it_was_asked_for(start, make_groups):
    server = start()
    with server.client() as client:
        answer = client.score(make_groups((3, [4])), deadline_seconds=1e-9)
    assert answer.status_code == 504
    assert answer.json()["detail"].startswith("not scored within 1e-09 s: ")
