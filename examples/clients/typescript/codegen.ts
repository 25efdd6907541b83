import type { CodegenConfig } from '@graphql-codegen/cli'

const config: CodegenConfig = {
  schema: '../schema.graphql',
  documents: '../operations.graphql',
  generates: {
    'src/generated.ts': {
      plugins: ['typescript-operations', 'typed-document-node'],
      config: { strictScalars: true, useTypeImports: true, documentMode: 'string' },
    },
  },
}

export default config
