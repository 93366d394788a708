"""What the scripts check with."""


def equal(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def fails(what, kind, call, words=""):
    try:
        found = call()
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"{what}: {error}") from error
        return
    raise AssertionError(f"{what}: {kind.__name__} was to be raised, found {found!r}")
