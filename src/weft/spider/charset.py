def decode(body, content_type):
    return body.decode("utf-8", "replace"), "utf-8"


def is_utf8(body, content_type):
    return True
