// The reference: graphql-js 17 executes a request with the schema that the server's
// introspection returns.
import assert from 'node:assert/strict'
import {
  __Directive, __Schema, buildClientSchema, execute, getIntrospectionQuery, getOperationAST, introspectionTypes,
  parse, specifiedRules, specifiedScalarTypes, subscribe, validate,
} from 'graphql-17'
import { attach } from './resolvers.js'

// everything is an introspection query for all fields.
export const everything = getIntrospectionQuery({
  descriptions: true, specifiedByUrl: true, directiveIsRepeatable: true,
  schemaDescription: true, inputValueDeprecation: true, oneOf: true,
})

// The rules without those for @defer and @stream, which only a draft has.
const rules = specifiedRules.filter(({ name }) => !/^(Defer|Stream)/.test(name))
const strict = { hideSuggestions: true, allowEmptySelectionSets: false }

// check parses and validates a text. It returns the document, or all errors.
export function check(schema, text) {
  try {
    const document = parse(text, strict)
    return { document, errors: validate(schema, document, rules, strict) }
  } catch (err) {
    return { errors: [err] }
  }
}

export class Reference {
  constructor(introspection, chain) {
    this.schema = buildClientSchema(introspection)
    this.schema._typeMap = inOrder(this.schema.getTypeMap(), introspection.__schema.types)
    forgetDrafts()
    adoptWords(introspection.__schema.types)
    attach(this.schema, chain)
  }

  // answer returns the expected result: a refusal, a stream or its refusal, or data, with the errors. A refusal that
  // depends only on the document is fixed.
  async answer({ query, variables, operationName }) {
    const { document, errors } = check(this.schema, query)
    if (errors.length > 0) return { refused: true, fixed: true, errors }
    const name = operationName || undefined // an empty name counts as absent
    const request = { schema: this.schema, document, operationName: name, variableValues: variables === undefined ? undefined : JSON.parse(variables) }
    if (getOperationAST(document, name)?.operation === 'subscription') return this.stream(request)
    const { data, errors: fieldErrors = [] } = execute(request) // no resolver is asynchronous, so execute returns the result itself
    if (data === undefined) return { refused: true, errors: fieldErrors }
    return { data: JSON.stringify(data), errors: fieldErrors }
  }

  async stream(request) {
    const refused = execute(request) // shows only whether the variables are valid
    if (refused.data === undefined) return { refused: true, errors: refused.errors }
    const { errors } = await subscribe(request)
    return { stream: true, errors }
  }
}

// The specification does not define the order of types, so the server's order is used.
function inOrder(types, introspected) {
  assert.deepEqual(Object.keys(types).sort(), introspected.map((t) => t.name).sort(), 'introspection returns other types than the schema')
  return Object.fromEntries(introspected.map(({ name }) => [name, types[name]]))
}

// graphql-js 17 has deprecated directives and directives on directives, which
// the specification of September 2025 does not have.
export function forgetDrafts() {
  const fields = __Directive.getFields()
  delete fields.isDeprecated
  delete fields.deprecationReason
  __Schema.getFields().directives.args = []
}

// The specification does not define the descriptions of built-in types, so those of the server are used.
function adoptWords(introspected) {
  for (const type of [...specifiedScalarTypes, ...introspectionTypes]) {
    const seen = introspected.find((t) => t.name === type.name)
    if (!seen) continue // a scalar that the schema does not use
    type.description = seen.description
    for (const field of seen.fields ?? []) {
      const own = type.getFields()[field.name]
      assert.ok(own, `${type.name}.${field.name} is unknown`)
      own.description = field.description
      for (const arg of field.args) own.args.find((a) => a.name === arg.name).description = arg.description
    }
    // introspection.js checks the values of the enums.
    if (seen.enumValues) type._values = seen.enumValues.map(({ name, description }) => Object.assign(type.getValue(name), { description }))
  }
}
