"""Helpers to read the document."""

from service.openapi import each_operation


def answers(document):
    """Method, path, status and response of all operations, with references resolved."""
    for method, path, operation in each_operation(document):
        for status, answer in operation["responses"].items():
            name = answer.get("$ref", "").rpartition("/")[2]
            yield method, path, status, document["components"]["responses"][name] if name else answer
