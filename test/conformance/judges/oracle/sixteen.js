// graphql-js 16, as a second opinion on whether a document is valid.
import { buildClientSchema, parse, validate } from 'graphql'

export class Sixteen {
  constructor(introspection) {
    this.schema = buildClientSchema(introspection)
  }

  valid(text) {
    try {
      return validate(this.schema, parse(text)).length === 0
    } catch { // validate also throws if a condition in a subscription is a variable
      return false
    }
  }
}
