// Random values of each input type, as literals and as JSON, valid and invalid.
import { GraphQLInputObjectType, isEnumType, isInputObjectType, isListType, isNonNullType } from 'graphql-17'
import { friendly } from './chain.js'

const numbers = {
  Int: ['0', '-0', '1', '2', '3', '5', '50', '51', '-1', '2147483647', '-2147483648'],
  Float: ['0', '-0', '1', '7', '1.5', '-0.25', '1e3', '1E-2', '2.50e+1', '4294967295', '1573822385', '9007199254740993'],
}
const badNumbers = {
  Int: ['2147483648', '-2147483649', '99999999999999999999', '1.0', '1e0', '"1"', 'true', '1.5', '[1, "2"]', '{}', 'HEX'],
  Float: ['"1"', 'true', 'NaN', '{}', 'HEX', '""'],
}
// Texts that look like numbers but are not valid.
const malformed = ['01', '-', '1.', '.5', '1e', '0x1f', '+1', '1_000', '1.e1', '--1', '00', '1a', '1.5b', '-01', '1..2']
const badJSON = {
  Int: ['2147483648', '-2147483649', '1.5', '"1"', 'true', '[]', '{}', '1e10', '[1]'],
  Float: ['"1"', 'true', '[]', '{}', '""'],
  String: ['1', 'true', '[]', '{}', '["a"]'],
  ID: ['1.5', 'true', '[]', '{}'],
  Boolean: ['1', '0', '"true"', '[]', '{}'],
}
const jsonNumbers = { Int: ['0', '1', '2', '3', '5', '50', '-1', '2147483647', '-2147483648', '3.0', '1e0', '-0', '0.5e1'], Float: [...numbers.Float] }
const oddStrings = ['', ' ', 'é', '日本', '😀', 'a"b', 'a\\b', 'line\nbreak', 'tab\t', '\u2028', 'null', '__typename', '  indented', '<&>', 'a\u0000b', '\u007f']

// wordsOf returns functions that generate meaningful strings, keyed by the name of the argument or field.
export function wordsOf({ blocks, balances }, random) {
  const block = () => random.pick(blocks)
  const cursor = () => random.pick([block().chain_order, block().chain_order, blocks[0].chain_order, blocks.at(-1).chain_order, '', '0', 'mm', 'Z', 'x'.repeat(3), 'f'.repeat(64), 'f'.repeat(65)])
  const hex = (text) => random.pick([text, text, text.toUpperCase(), text.slice(1), `${text}0`, `g${text.slice(1)}`])
  return {
    address() {
      const address = random.pick([...balances.keys()])
      const other = random.pick(['base64', 'base64url'])
      return random.pick([
        address, address, address.toUpperCase(), friendly(address, other), friendly(address, other, 0x51), friendly(address, other, 0xd1),
        friendly(address, other, 0x31), address.slice(1), `0${address}`, `+${address}`, `2147483648:${address.split(':')[1]}`,
        friendly(address).replace(/.$/, 'A'), ` ${address}`, '-0:' + address.split(':')[1], 'nobody',
      ])
    },
    after: cursor, before: cursor, chain_order: cursor,
    shard: () => hex(block().shard),
    id: () => hex(block().hash), hash: () => hex(block().hash),
    name: () => random.pick(['Query', 'Node', 'Block', 'BlockFilter', 'BigIntFormat', 'String', 'Nope', 'query', 'Float', 'BlockchainBlock', 'Subscription']),
  }
}

export class Values {
  constructor(random, words, slip) {
    Object.assign(this, { random, words, slip })
  }

  string(place) {
    return this.words[place] && !this.random.chance(0.1) ? this.words[place]() : this.random.pick(oddStrings)
  }

  // literal writes a value as a literal. If the function variable is given, it may return a variable to use instead.
  literal(type, place, variable, depth = 0, required = false) {
    const { random } = this
    const offered = variable && random.chance(0.25) ? variable(type, place) : undefined
    if (offered) return offered
    if (isNonNullType(type)) return this.slip() ? 'null' : this.literal(type.ofType, place, undefined, depth, true)
    if (!required && random.chance(0.04)) return 'null'
    if (isListType(type)) {
      if (random.chance(0.15)) return this.literal(type.ofType, place, undefined, depth) // a single value is coerced to a list
      if (this.slip()) return `[[${this.literal(type.ofType, place, undefined, depth + 1)}]]`
      return `[${this.many(3, () => this.literal(type.ofType, place, variable, depth + 1)).join(random.pick([',', ' ', ' , ']))}]`
    }
    if (isEnumType(type)) {
      return this.slip() ? random.pick(['"HEX"', 'HEXX', 'hex', 'true', '1', '[]', '{}', '"""DEC"""']) : random.pick(type.getValues()).name
    }
    if (isInputObjectType(type)) return this.object(type, variable, depth)
    return this.scalar(type.name, place)
  }

  scalar(name, place) {
    const { random } = this
    switch (name) {
      case 'Boolean': return this.slip() ? random.pick(['1', '"true"', 'True', '{}', '[true]']) : random.pick(['true', 'false'])
      case 'Int':
      case 'Float':
        if (this.slip()) return random.pick(random.chance(0.3) ? malformed : badNumbers[name])
        if (place === 'first' || place === 'last') return random.pick(['1', '2', '3', '4', '4', '50', '51', '0', '-1'])
        if (place === 'workchain' || place === 'workchain_id') return random.pick(['0', '-1', '-1', '7'])
        return random.pick(numbers[name])
      case 'ID':
        if (random.chance(0.3)) return random.pick(numbers.Int)
    }
    if (this.slip()) return random.pick(['1', 'HEX', 'true', '[]', '{}', '1.5', ...malformed, '"\\x"', '"\\u12"', '"\\uD800"', '"open', "'single'", '"""open', '"a\nb"'])
    return this.quoted(this.string(place))
  }

  // quoted writes a string literal in one of several ways.
  quoted(text) {
    const { random } = this
    if (random.chance(0.2) && /^[^\u0000-\u001f"\\\s][^\u0000-\u001f"\\]*$/.test(text) && text.trim() === text) {
      return random.pick([`"""${text}"""`, `"""\n    ${text}\n  """`, `"""\r\n\t${text}\r\n\r\n"""`])
    }
    const escape = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
    const json = JSON.stringify(text).replace(/[\u0000-\u001f]/g, escape)
    switch (random.below(6)) {
      case 0: return json.replace(/[^"\\]/u, (c, i) => (i === 1 && c.length === 1 ? escape(c) : c))
      case 1: return json.replace(/[^\u0000-\u007f]/g, escape)
      case 2: return json.replace(/[^\u0000-\u007f]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)
      default: return json
    }
  }

  object(type, variable, depth) {
    const { random } = this
    if (this.slip()) return random.pick(['1', '"a"', '[]', 'HEX', 'true', '{nope: 1}', '{eq: }', '{:1}', '{eq 1}', '{', '{"eq": 1}'])
    const nested = (f) => f.type instanceof GraphQLInputObjectType && (depth > 3 || random.chance(0.3))
    const fields = random.shuffled(Object.values(type.getFields())).slice(0, random.below(4)).filter((f) => !nested(f))
    if (fields.length > 0 && this.slip()) fields.push(fields[0])
    const place = (f) => (['eq', 'ne', 'gt', 'lt', 'ge', 'le', 'in', 'notIn'].includes(f.name) ? 'id' : f.name)
    const parts = fields.map((f) => `${f.name}: ${this.literal(f.type, place(f), variable, depth + 1)}`)
    if (this.slip()) parts.push('nope: 1')
    return `{${parts.join(random.pick([', ', ' ']))}}`
  }

  many(most, make) {
    return Array.from({ length: this.random.below(most + 1) }, make)
  }

  // json writes the value of a variable as JSON.
  json(type, place, depth = 0, required = false) {
    const { random } = this
    if (isNonNullType(type)) return this.slip() ? 'null' : this.json(type.ofType, place, depth, true)
    if (!required && random.chance(0.08)) return 'null'
    if (isListType(type)) {
      if (random.chance(0.15)) return this.json(type.ofType, place, depth)
      if (this.slip()) return `[[${this.json(type.ofType, place, depth)}]]`
      return `[${this.many(3, () => this.json(type.ofType, place, depth + 1)).join(',')}]`
    }
    if (isEnumType(type)) return this.slip() ? random.pick(['"HEXX"', '"hex"', '1', 'true', '{}', '""', '[]']) : `"${random.pick(type.getValues()).name}"`
    if (isInputObjectType(type)) {
      if (this.slip()) return random.pick(['1', '"a"', '[]', 'true', '{"nope":1}', '{"eq":1,"__proto__x":2}'])
      const fields = random.shuffled(Object.values(type.getFields())).slice(0, random.below(4)).filter((f) => depth < 4 || !isInputObjectType(f.type))
      return `{${fields.map((f) => `"${f.name}":${this.json(f.type, f.name, depth + 1)}`).join(',')}}`
    }
    if (this.slip()) return random.pick(badJSON[type.name])
    switch (type.name) {
      case 'Boolean': return random.pick(['true', 'false'])
      case 'Int': return place === 'first' || place === 'last' ? random.pick(['1', '2', '3', '4.0', '0']) : random.pick(jsonNumbers.Int)
      case 'Float': return random.pick(jsonNumbers.Float)
      case 'ID': if (random.chance(0.4)) return random.pick(['1', '0', '-5', '2147483648', '7.0'])
    }
    return JSON.stringify(this.string(place))
  }
}
