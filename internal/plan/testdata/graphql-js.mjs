// Rewrites the messages in graphql-js.txt. Each document is a line; after it, each
// message that validate of graphql-js returns is a line that begins with a tab.
//
//	npm install graphql@16.15.0
//	node graphql-js.mjs schema.graphql graphql-js.txt
//
// schema.graphql is what testSchema(t).SDL() returns.
import {readFileSync, writeFileSync} from "node:fs"
import {buildSchema, parse, validate} from "graphql"

const [, , schemaFile, file] = process.argv
const schema = buildSchema(readFileSync(schemaFile, "utf8"))
const documents = readFileSync(file, "utf8").split("\n").filter((line) => line && !line.startsWith("\t"))
const messages = (text) => validate(schema, parse(text)).map((e) => "\t" + e.message.replace(/ Did you mean .*/, ""))
writeFileSync(file, documents.flatMap((text) => [text, ...messages(text)]).join("\n") + "\n")
