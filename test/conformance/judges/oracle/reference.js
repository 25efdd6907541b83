// graphql-js as the second opinion: what it makes of a request over the schema
// that the server itself introspects.
import assert from 'node:assert/strict'
import {
  __Directive, __Schema, buildClientSchema, execute, getIntrospectionQuery, getOperationAST, GraphQLError, introspectionTypes,
  parse, specifiedRules, specifiedScalarTypes, subscribe, validate,
} from 'graphql'
import { attach } from './resolvers.js'

// everything asks introspection for all there is.
export const everything = getIntrospectionQuery({
  descriptions: true, specifiedByUrl: true, directiveIsRepeatable: true,
  schemaDescription: true, inputValueDeprecation: true, oneOf: true,
})

// What the specification of September 2025 refuses and graphql-js 16 does not.
const rules = [...specifiedRules, operationTypes, unconditionalStream]

// 5.2.1.1: an operation's type must be one of the schema's.
function operationTypes(context) {
  return {
    OperationDefinition(node) {
      if (!context.getSchema().getRootType(node.operation)) {
        context.reportError(new GraphQLError(`The schema has no ${node.operation}.`, { nodes: node }))
      }
    },
  }
}

// 5.2.4.1: neither @skip nor @include on what a subscription selects at its top.
function unconditionalStream(context) {
  const check = ({ selections }, seen) => {
    for (const selection of selections) {
      if (selection.directives.some((d) => d.name.value === 'skip' || d.name.value === 'include')) {
        context.reportError(new GraphQLError('A subscription is unconditional.', { nodes: selection }))
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

  // answer tells what must come: a refusal, a stream or its refusal, or data
  // with the paths of its errors.
  async answer({ query, variables, operationName }) {
    let document
    try {
      document = parse(query)
      const [error] = validate(this.schema, document, rules)
      if (error) throw error
    } catch (err) { // validate, too, throws where a stream's condition is a variable
      return { refused: true, why: err.message }
    }
    const name = operationName || undefined // an empty one counts as absent
    const request = { schema: this.schema, document, operationName: name, variableValues: variables === undefined ? undefined : JSON.parse(variables) }
    if (getOperationAST(document, name)?.operation === 'subscription') return this.stream(request)
    const { data, errors: fieldErrors = [] } = execute(request) // nothing in it waits, so neither does this
    if (data === undefined) return { refused: true, why: fieldErrors[0].message }
    return { data: JSON.stringify(data), paths: fieldErrors.map((err) => err.path) }
  }

  async stream(request) {
    const refused = execute(request) // says nothing of its data: only whether the variables are good
    if (refused.data === undefined) return { refused: true, why: refused.errors[0].message }
    const stream = await subscribe(request)
    return { stream: true, why: stream.errors?.[0].message }
  }
}

// The specification knows no order of types; the server's is as good as any.
function inOrder(types, introspected) {
  assert.deepEqual(Object.keys(types).sort(), introspected.map((t) => t.name).sort(), 'introspection has types of its own')
  return Object.fromEntries(introspected.map(({ name }) => [name, types[name]]))
}

// graphql-js 16.15 lets directives be deprecated and have directives, which the
// specification of September 2025 does not.
function forgetDrafts() {
  const fields = __Directive.getFields()
  delete fields.isDeprecated
  delete fields.deprecationReason
  __Schema.getFields().directives.args = []
}

// Nor does it know the words that describe what every schema has.
function adoptWords(introspected) {
  for (const type of [...specifiedScalarTypes, ...introspectionTypes]) {
    const seen = introspected.find((t) => t.name === type.name)
    if (!seen) continue // a scalar that is not in use
    type.description = seen.description
    for (const field of seen.fields ?? []) {
      const own = type.getFields()[field.name]
      assert.ok(own, `${type.name}.${field.name} is unknown`)
      own.description = field.description
      for (const arg of field.args) own.args.find((a) => a.name === arg.name).description = arg.description
    }
    // Which locations there are is the business of introspection.js.
    if (seen.enumValues) type._values = seen.enumValues.map(({ name, description }) => Object.assign(type.getValue(name), { description }))
  }
}
