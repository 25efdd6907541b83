// The reference: graphql-js executes a request with the schema that the server's
// introspection returns.
import assert from 'node:assert/strict'
import {
  __Directive, __Schema, buildClientSchema, execute, getIntrospectionQuery, getOperationAST, GraphQLError, introspectionTypes,
  parse, specifiedRules, specifiedScalarTypes, subscribe, validate,
} from 'graphql'
import { attach } from './resolvers.js'

// everything is an introspection query for all fields.
export const everything = getIntrospectionQuery({
  descriptions: true, specifiedByUrl: true, directiveIsRepeatable: true,
  schemaDescription: true, inputValueDeprecation: true, oneOf: true,
})

// The rules include two that the specification of September 2025 requires but graphql-js 16 lacks.
const rules = [...specifiedRules, operationTypes, unconditionalStream]

// 5.2.1.1: the schema must have a root type for each operation.
function operationTypes(context) {
  return {
    OperationDefinition(node) {
      if (!context.getSchema().getRootType(node.operation)) {
        context.reportError(new GraphQLError(`The schema has no ${node.operation}.`, { nodes: node }))
      }
    },
  }
}

// 5.2.4.1: the root selections of a subscription must have neither @skip nor @include.
function unconditionalStream(context) {
  const check = ({ selections }, seen) => {
    for (const selection of selections) {
      if (selection.directives.some((d) => d.name.value === 'skip' || d.name.value === 'include')) {
        context.reportError(new GraphQLError('The root field of a subscription must not be conditional.', { nodes: selection }))
      }
      const name = selection.kind === 'FragmentSpread' && selection.name.value
      if (selection.kind === 'InlineFragment') check(selection.selectionSet, seen)
      if (name && !seen.has(name) && context.getFragment(name)) check(context.getFragment(name).selectionSet, seen.add(name))
    }
  }
  return {
    OperationDefinition(node) {
      if (node.operation === 'subscription') check(node.selectionSet, new Set())
    },
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

  // answer returns the expected result: a refusal, a stream or its refusal, or data
  // with the paths of its errors.
  async answer({ query, variables, operationName }) {
    let document
    try {
      document = parse(query)
      const [error] = validate(this.schema, document, rules)
      if (error) throw error
    } catch (err) { // validate also throws if a condition in a subscription is a variable
      return { refused: true, why: err.message }
    }
    const name = operationName || undefined // an empty name counts as absent
    const request = { schema: this.schema, document, operationName: name, variableValues: variables === undefined ? undefined : JSON.parse(variables) }
    if (getOperationAST(document, name)?.operation === 'subscription') return this.stream(request)
    const { data, errors: fieldErrors = [] } = execute(request) // no resolver is asynchronous, so execute returns the result itself
    if (data === undefined) return { refused: true, why: fieldErrors[0].message }
    return { data: JSON.stringify(data), paths: fieldErrors.map((err) => err.path) }
  }

  async stream(request) {
    const refused = execute(request) // shows only whether the variables are valid
    if (refused.data === undefined) return { refused: true, why: refused.errors[0].message }
    const stream = await subscribe(request)
    return { stream: true, why: stream.errors?.[0].message }
  }
}

// The specification does not define the order of types, so the server's order is used.
function inOrder(types, introspected) {
  assert.deepEqual(Object.keys(types).sort(), introspected.map((t) => t.name).sort(), 'introspection returns other types than the schema')
  return Object.fromEntries(introspected.map(({ name }) => [name, types[name]]))
}

// graphql-js 16.15 has deprecated directives and directives on directives, which
// the specification of September 2025 does not have.
function forgetDrafts() {
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
