/** Internal type. DO NOT USE DIRECTLY. */
type Exact<T extends { [key: string]: unknown }> = { [K in keyof T]: T[K] };
/** Internal type. DO NOT USE DIRECTLY. */
export type Incremental<T> = T | { [P in keyof T]?: P extends ' $fragmentName' | '__typename' ? T[P] : never };
import type { DocumentTypeDecoration } from '@graphql-typed-document-node/core';
/** Conditions on a block. A block matches if it satisfies all fields that are set, or the alternative in OR. */
export type BlockFilter = {
  /** An alternative to the conditions above. A filter without fields matches every block. */
  OR?: BlockFilter | null | undefined;
  /** The position of the block in the order of all blocks. */
  chain_order?: StringFilter | null | undefined;
  /** The time at which the block was generated, as Unix time in seconds. */
  gen_utime?: FloatFilter | null | undefined;
  /** The hash of the block, as hex digits in upper or lower case. */
  id?: StringFilter | null | undefined;
  /** The sequence number of the block in its shard. */
  seq_no?: FloatFilter | null | undefined;
  /** The shard of the block, as 16 hex digits in upper or lower case. */
  shard?: StringFilter | null | undefined;
  /** The workchain of the block. The masterchain is -1. */
  workchain_id?: IntFilter | null | undefined;
};

/** Conditions on a value. The value must satisfy all that are set. */
export type FloatFilter = {
  /** Equal to this value. Null matches nothing. */
  eq?: number | null | undefined;
  /** Greater than or equal to this value. */
  ge?: number | null | undefined;
  /** Greater than this value. */
  gt?: number | null | undefined;
  /** Equal to one of these values. An empty list matches nothing. */
  in?: Array<number | null | undefined> | null | undefined;
  /** Less than or equal to this value. */
  le?: number | null | undefined;
  /** Less than this value. */
  lt?: number | null | undefined;
  /** Not equal to this value. Null matches everything. */
  ne?: number | null | undefined;
  /** Equal to none of these values. An empty list matches everything. */
  notIn?: Array<number | null | undefined> | null | undefined;
};

/** Conditions on a value. The value must satisfy all that are set. */
export type IntFilter = {
  /** Equal to this value. Null matches nothing. */
  eq?: number | null | undefined;
  /** Greater than or equal to this value. */
  ge?: number | null | undefined;
  /** Greater than this value. */
  gt?: number | null | undefined;
  /** Equal to one of these values. An empty list matches nothing. */
  in?: Array<number | null | undefined> | null | undefined;
  /** Less than or equal to this value. */
  le?: number | null | undefined;
  /** Less than this value. */
  lt?: number | null | undefined;
  /** Not equal to this value. Null matches everything. */
  ne?: number | null | undefined;
  /** Equal to none of these values. An empty list matches everything. */
  notIn?: Array<number | null | undefined> | null | undefined;
};

/** Conditions on a value. The value must satisfy all that are set. */
export type StringFilter = {
  /** Equal to this value. Null matches nothing. */
  eq?: string | null | undefined;
  /** Greater than or equal to this value. */
  ge?: string | null | undefined;
  /** Greater than this value. */
  gt?: string | null | undefined;
  /** Equal to one of these values. An empty list matches nothing. */
  in?: Array<string | null | undefined> | null | undefined;
  /** Less than or equal to this value. */
  le?: string | null | undefined;
  /** Less than this value. */
  lt?: string | null | undefined;
  /** Not equal to this value. Null matches everything. */
  ne?: string | null | undefined;
  /** Equal to none of these values. An empty list matches everything. */
  notIn?: Array<string | null | undefined> | null | undefined;
};

export type BalanceQueryVariables = Exact<{
  address: string;
}>;


export type BalanceQuery = { blockchain: { account: { info: { address: string | null, balance: string | null } | null } | null } | null };

export type NewestQueryVariables = Exact<{ [key: string]: never; }>;


export type NewestQuery = { blockchain: { blocks: { pageInfo: { endCursor: string | null } } | null } | null };

export type BlocksSubscriptionVariables = Exact<{
  filter?: BlockFilter | null | undefined;
  after?: string | null | undefined;
}>;


export type BlocksSubscription = { blocks: { id: string | null, workchain_id: number | null, shard: string | null, seq_no: number | null, gen_utime: number | null, chain_order: string | null, cursor: string | null } | null };

export type BlockFragment = { id: string | null, workchain_id: number | null, shard: string | null, seq_no: number | null, gen_utime: number | null, chain_order: string | null, cursor: string | null };

export class TypedDocumentString<TResult, TVariables>
  extends String
  implements DocumentTypeDecoration<TResult, TVariables>
{
  __apiType?: NonNullable<DocumentTypeDecoration<TResult, TVariables>['__apiType']>;
  private value: string;
  public __meta__?: Record<string, any> | undefined;

  constructor(value: string, __meta__?: Record<string, any> | undefined) {
    super(value);
    this.value = value;
    this.__meta__ = __meta__;
  }

  override toString(): string & DocumentTypeDecoration<TResult, TVariables> {
    return this.value;
  }
}
export const BlockFragmentDoc = new TypedDocumentString(`
    fragment Block on Block {
  id
  workchain_id
  shard
  seq_no
  gen_utime
  chain_order
  cursor
}
    `, {"fragmentName":"Block"}) as unknown as TypedDocumentString<BlockFragment, unknown>;
export const BalanceDocument = new TypedDocumentString(`
    query Balance($address: String!) {
  blockchain {
    account(address: $address) {
      info {
        address
        balance(format: DEC)
      }
    }
  }
}
    `) as unknown as TypedDocumentString<BalanceQuery, BalanceQueryVariables>;
export const NewestDocument = new TypedDocumentString(`
    query Newest {
  blockchain {
    blocks(last: 1) {
      pageInfo {
        endCursor
      }
    }
  }
}
    `) as unknown as TypedDocumentString<NewestQuery, NewestQueryVariables>;
export const BlocksDocument = new TypedDocumentString(`
    subscription Blocks($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) {
    ...Block
  }
}
    fragment Block on Block {
  id
  workchain_id
  shard
  seq_no
  gen_utime
  chain_order
  cursor
}`) as unknown as TypedDocumentString<BlocksSubscription, BlocksSubscriptionVariables>;