"""Validators of JSON Schema."""


def validator(schema):
    from jsonschema import Draft202012Validator  # takes a second, which each process of `make test` would pay

    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def conforms(document, builtin):
    """Raises jsonschema.ValidationError unless `document` fits a schema that check-jsonschema ships."""
    import jsonschema
    from check_jsonschema.builtin_schemas import get_builtin_schema

    jsonschema.validate(document, get_builtin_schema(builtin))
