// Random requests: a document that matches the schema, except for random mistakes
// (slips), with its variables and an operation name. risk is the probability of a
// slip.
import { doTypesOverlap, getNamedType, isCompositeType, isInputType, isNonNullType, isTypeSubTypeOf, parseType, SchemaMetaFieldDef, typeFromAST, TypeMetaFieldDef } from 'graphql-17'
import { mutate } from './mutations.js'
import { oddities } from './oddities.js'
import { Random } from './random.js'
import { Values, wordsOf } from './values.js'

// Fields whose values change between two requests.
const moving = new Set(['time', 'latency', 'blocksLatency'])
const directives = ['@nope', '@skip', '@include(if: null)', '@skip(if: "true")', '@include(if: true, if: true)', '@deprecated', '@oneOf', '@defer', '@skip(unless: true)', '@skip(if: true) @skip(if: true)']

// request returns request i of a seed. If i is odd and the previous request has
// variables, it is the previous request with other values of the variables. It has only fields and arguments for which
// the function resolves returns true.
export function request(schema, chain, seed, i, resolves = () => true) {
  if (i < oddities.length) return oddities[i]
  const made = make(schema, chain, resolves, seed, i - (i % 2), i)
  return i % 2 === 0 || made.variables ? made : make(schema, chain, resolves, seed, i, i)
}

function make(schema, chain, resolves, seed, i, valuesOf) {
  const random = new Random(seed, i)
  const writer = new Writer(random, schema, chain, resolves, random.pick([0, 0, 0, 0.004, 0.01, 0.01, 0.03]))
  const { query, operationName } = writer.request()
  const text = random.chance(0.2) ? mutate(random, query) : query
  return { query: text, variables: writer.given(new Random(seed, valuesOf, 1)), operationName }
}

class Writer {
  constructor(random, schema, chain, resolves, risk) {
    Object.assign(this, { random, schema, chain, resolves, risk, fragments: [], variables: [], calls: new Map(), left: 60, directivesLeft: 20 })
    this.values = new Values(random, wordsOf(chain, random), () => random.chance(3 * risk))
  }

  slip() {
    return this.random.chance(this.risk)
  }

  gap() {
    return this.random.chance(0.85) ? ' ' : this.random.pick(['\n', ',', '\t', '  ', '\r\n', '\n# a comment: { é "\n', ' #\r', ', ,'])
  }

  request() {
    const { random } = this
    const count = random.chance(0.15) ? 2 + random.below(2) : 1
    const operations = Array.from({ length: count }, (_, i) => this.operation(i, count))
    if (this.slip()) this.fragment(this.schema.getType('BlockchainBlock')) // the fragment is not used
    let operationName = count > 1 || random.chance(0.2) ? random.pick(operations).name : undefined
    if (this.slip()) operationName = random.pick(['Nope', undefined, operations[0].name && `${operations[0].name}x`, ''])
    const texts = [...operations.map((op) => this.header(op) + op.body), ...this.fragments.map((f) => `${this.description()}fragment ${f.name} on ${f.type}${f.directives}${this.gap()}${f.body}`)]
    const query = (random.chance(0.05) ? '\ufeff' : '') + random.shuffled(texts).join(random.pick(['\n', ' ', '\n\n']))
    return { query, operationName }
  }

  operation(i, count) {
    const { random, schema } = this
    const kind = this.slip() ? 'mutation' : random.chance(0.12) ? 'subscription' : 'query'
    const type = kind === 'mutation' ? schema.getQueryType() : schema.getRootType(kind)
    const def = { kind, name: count > 1 || random.chance(0.4) ? `Op${i}` : undefined, uses: new Set(), spreads: new Set() }
    if (count > 1 && this.slip()) def.name = random.pick([undefined, 'Op0'])
    this.onStream = kind === 'subscription'
    def.body = this.onStream && !this.slip() ? this.stream(type, def) : this.set(type, 6, def)
    return def
  }

  // stream writes a selection of one field, either directly or in a fragment.
  stream(type, def) {
    const field = this.field(type, 5, def, type.getFields().blocks)
    return this.random.pick([`{${field}}`, `{${field}}`, `{... on Subscription{${field}}}`, `{...{${field}}${this.slip() ? ' __typename' : ''}}`])
  }

  // description writes an optional description of an operation, variable or fragment. A query in the short form
  // cannot have one.
  description() {
    return this.random.chance(0.04) ? this.random.pick(['"what it does" ', '"""\nwhat it does\n"""\n', '"" ']) : ''
  }

  header(op) {
    const uses = new Set()
    const seen = new Set()
    const collect = (def) => {
      for (const v of def.uses) uses.add(v)
      for (const f of def.spreads) if (!seen.has(f)) collect((seen.add(f), f))
    }
    collect(op)
    const used = this.variables.filter((v) => uses.has(v) && !this.slip())
    if (this.slip()) used.push(this.declare('Int', 'first'))
    if (used.length > 0 && this.slip()) used.push(used[0])
    const list = used.length > 0 ? `(${used.map((v) => `${this.description()}$${v.name}:${this.gap()}${v.type}${v.default}${this.slip() ? this.random.pick(directives) : ''}`).join(this.gap())})` : ''
    if (!list && !op.name && op.kind === 'query' && this.random.chance(0.7)) return ''
    return `${this.description()}${op.kind}${this.gap()}${op.name ?? ''}${list}${this.slip() ? this.random.pick(directives) : ''}${this.gap()}`
  }

  set(type, depth, def) {
    const { random } = this
    const items = Array.from({ length: 1 + random.below(4) }, () => this.selection(type, depth, def))
    return `{${items.join(this.gap())}}`
  }

  selection(type, depth, def) {
    const { random } = this
    const roll = random.below(100)
    this.left--
    if (depth > 0 && this.left > 0) {
      if (roll < 10) return this.inline(type, depth, def)
      if (roll < 20) return this.spread(type, depth, def)
    }
    if (roll < 28 && type !== this.schema.getSubscriptionType()) return `${this.random.chance(0.3) ? 'what: ' : ''}__typename${this.directives(def)}`
    if (this.slip()) return random.pick(['nope', 'Id', 'blocks', 'id{id}', '__schema', 'a: b', '__Typename', 'node', 'id: hash', 'cursor: __typename'])
    return this.field(type, depth, def)
  }

  condition(type) {
    const all = Object.values(this.schema.getTypeMap()).filter(isCompositeType)
    if (this.slip()) return this.random.pick([...all.map((t) => t.name), 'Nope', 'String', 'BlockFilter', 'BigIntFormat'])
    const fitting = all.filter((t) => doTypesOverlap(this.schema, t, type))
    return this.random.pick(fitting).name
  }

  inline(type, depth, def) {
    const name = this.random.chance(0.3) ? undefined : this.condition(type)
    const inner = this.schema.getType(name ?? type.name)
    const known = isCompositeType(inner) ? inner : type
    return `...${name ? `${this.gap()}on ${name}` : ''}${this.directives(def)}${this.gap()}${this.set(known, depth - 1, def)}`
  }

  spread(type, depth, def) {
    const { random } = this
    if (this.slip()) return `...${random.pick(['Nope', 'F0', 'F1', 'F2', 'on'])}${this.directives(def)}` // an unknown fragment, an impossible one, or a cycle
    const fitting = this.fragments.filter((f) => !f.open && f.onStream === this.onStream && doTypesOverlap(this.schema, f.known, type))
    const one = fitting.length > 0 && random.chance(0.5) ? random.pick(fitting) : this.fragment(this.schema.getType(this.condition(type)), depth - 1)
    if (!one) return '__typename'
    def.spreads.add(one)
    return `...${one.name}${this.directives(def)}`
  }

  fragment(type, depth = 1) {
    if (this.fragments.length > 6 || !isCompositeType(type) || type === this.schema.getSubscriptionType()) return undefined
    const f = { name: `F${this.fragments.length}`, type: type.name, known: type, open: true, onStream: this.onStream, uses: new Set(), spreads: new Set() }
    this.fragments.push(f)
    f.directives = this.slip() ? this.random.pick(directives) : ''
    f.body = this.set(type, depth, f)
    if (this.slip()) f.type = this.random.pick(['Nope', 'String', 'Query', 'Node'])
    if (this.slip()) f.name = 'F0'
    f.open = false
    return f
  }

  field(type, depth, def, only) {
    const { random, schema } = this
    const meta = type === schema.getQueryType() && random.chance(0.15) ? [SchemaMetaFieldDef, TypeMetaFieldDef] : []
    const usable = [...Object.values(type.getFields?.() ?? {}), ...meta]
      .filter((f) => !moving.has(f.name) && this.resolves(type, f) && ((depth > 0 && this.left > 0) || !isCompositeType(getNamedType(f.type))))
    if (usable.length === 0 && !only) return '__typename'
    const field = only ?? random.pick(usable)
    const { alias, args } = this.call(type, field, def)
    const composite = isCompositeType(getNamedType(field.type))
    const body = composite !== this.slip() ? this.set(composite ? getNamedType(field.type) : schema.getType('PageInfo') ?? schema.getQueryType(), depth - 1, def) : ''
    const list = random.shuffled(args)
    return `${alias === field.name ? '' : `${alias}:${this.gap()}`}${field.name}${list.length > 0 ? `(${list.join(this.gap())})` : ''}${this.directives(def)}${body && this.gap()}${body}`
  }

  // call writes the arguments of a field. Except for slips, each response name is
  // used for only one combination of field and arguments in the whole document, so
  // that all fields with the same response name can be merged.
  call(type, field, def) {
    const { random } = this
    const key = `${type.name}.${field.name}`
    const same = [...this.calls].filter(([, c]) => c.key === key)
    if (same.length > 0 && random.chance(0.4)) {
      const [alias, known] = random.pick(same)
      for (const v of known.uses) def.uses.add(v)
      return { alias, args: this.slip() ? this.args(type, field, def) : known.args }
    }
    const inner = { uses: new Set() }
    const args = this.args(type, field, inner)
    for (const v of inner.uses) def.uses.add(v)
    const meaning = `${field.name}:${field.type}:${[...args].sort()}`
    for (let alias = random.chance(0.25) ? `a${random.below(4)}` : field.name; ; alias = `a${random.below(100)}`) {
      const known = this.calls.get(alias)
      if (known && known.meaning !== meaning && !this.slip()) continue
      if (!known) this.calls.set(alias, { key, meaning, args, uses: inner.uses })
      return { alias, args }
    }
  }

  args(type, field, def) {
    const { random } = this
    const window = random.pick([['first'], ['first', 'after'], ['first', 'after'], ['last'], ['last', 'before'], ['after'], [], ['first', 'last', 'after', 'before']])
    const paging = ['first', 'last', 'after', 'before']
    const wanted = field.args.filter((a) => {
      if (isNonNullType(a.type)) return !this.slip()
      if (!this.resolves(type, field, a)) return false
      if (a.name === 'after' && this.onStream) return false // resuming is not tested here
      return paging.includes(a.name) ? window.includes(a.name) : random.chance(0.35)
    })
    if (wanted.length > 0 && this.slip()) wanted.push(wanted[0])
    const args = wanted.map((a) => `${a.name}:${this.gap()}${this.values.literal(a.type, a.name, (type, place) => this.variable(type, place, def))}`)
    if (this.slip()) args.push(random.pick(['nope: 1', 'first: "1"', 'format: HEX']))
    return args
  }

  directives(def) {
    const { random } = this
    if (this.slip()) return ` ${random.pick(directives)}`
    const some = random.chance(0.12) ? random.pick([['skip'], ['include'], ['skip', 'include']]) : []
    if (this.directivesLeft < 2 || (this.onStream && !random.chance(0.1))) return ''
    this.directivesLeft -= some.length
    const condition = this.schema.getDirective('skip').args[0].type
    return some.map((name) => ` @${name}(if: ${this.values.literal(condition, 'if', (type) => this.variable(type, 'if', def))})`).join('')
  }

  // variable finds or declares a variable that can be used where a type is required.
  variable(type, place, def) {
    const { random } = this
    if (this.slip()) return random.pick(['$undefined', '$', '$1', '$$a'])
    const wanted = String(type)
    const fits = (v) => v.place === place && isTypeSubTypeOf(this.schema, v.known, type)
    let one = random.pick(this.variables.filter(fits).concat(undefined))
    if (!one && this.variables.length < 10) {
      let name = random.chance(0.3) && !wanted.endsWith('!') ? `${wanted}!` : wanted
      if (this.slip()) name = random.pick(['Int', 'String', 'Boolean', 'ID', '[Int]', 'Float!', 'BlockFilter', 'Nope', 'Query', '[String!]!'])
      one = this.declare(name, place, wanted)
    }
    if (!one) return undefined
    def.uses.add(one)
    return `$${one.name}`
  }

  declare(name, place, wanted) {
    const { random, schema } = this
    let type = typeFromAST(schema, parseType(name))
    const input = type && isInputType(type) ? type : typeFromAST(schema, parseType('Int'))
    let written = ''
    if (random.chance(0.25)) {
      written = ` = ${this.values.literal(input, place)}`
      // A variable with a default other than null may have a nullable type although the place is non-null.
      if (name === wanted && name.endsWith('!') && !written.endsWith('null') && random.chance(0.5)) name = name.slice(0, -1)
    }
    type = typeFromAST(schema, parseType(name)) ?? input
    const one = { name: `v${this.variables.length}`, type: name, known: isInputType(type) ? type : input, place, default: written }
    this.variables.push(one)
    return one
  }

  // given writes the values of the variables as JSON.
  given(random) {
    const values = new Values(random, wordsOf(this.chain, random), () => random.chance(4 * this.risk))
    if (this.variables.length === 0) return random.pick([undefined, undefined, 'null', '{}', '{"more":[1]}'])
    const parts = []
    for (const v of this.variables) {
      const needed = isNonNullType(v.known) && !v.default
      if (needed ? random.chance(this.risk) : random.chance(0.3)) continue
      parts.push(`"${v.name}":${values.json(v.known, v.place)}`)
    }
    if (random.chance(0.05)) parts.push('"more":{"than":"declared"}')
    return `{${parts.join(',')}}`
  }
}
