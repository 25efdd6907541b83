/** Internal type. DO NOT USE DIRECTLY. */
type Exact<T extends { [key: string]: unknown }> = { [K in keyof T]: T[K] };
/** Internal type. DO NOT USE DIRECTLY. */
export type Incremental<T> = T | { [P in keyof T]?: P extends ' $fragmentName' | '__typename' ? T[P] : never };
import type { DocumentTypeDecoration } from '@graphql-typed-document-node/core';
/** Which blocks to give. A block must satisfy every field that is set, or the alternative in OR. */
export type BlockFilter = {
  /** An alternative to all the fields above. One without a field matches everything. */
  OR?: BlockFilter | null | undefined;
  /** The block's place in the order of all blocks. */
  chain_order?: StringFilter | null | undefined;
  /** When the block was generated, in seconds since 1970. */
  gen_utime?: FloatFilter | null | undefined;
  /** The block's hash, hex digits of either case. */
  id?: StringFilter | null | undefined;
  /** The block's number in its shard. */
  seq_no?: FloatFilter | null | undefined;
  /** The block's shard: 16 hex digits of either case. */
  shard?: StringFilter | null | undefined;
  /** The block's workchain; -1 is the masterchain. */
  workchain_id?: IntFilter | null | undefined;
};

/** Conditions on a value; all that are set must hold. */
export type FloatFilter = {
  /** Equal to; null matches nothing. */
  eq?: number | null | undefined;
  /** Greater than or equal to. */
  ge?: number | null | undefined;
  /** Greater than. */
  gt?: number | null | undefined;
  /** One of; an empty list matches nothing. */
  in?: Array<number | null | undefined> | null | undefined;
  /** Less than or equal to. */
  le?: number | null | undefined;
  /** Less than. */
  lt?: number | null | undefined;
  /** Not equal to; null matches everything. */
  ne?: number | null | undefined;
  /** None of; an empty list matches everything. */
  notIn?: Array<number | null | undefined> | null | undefined;
};

/** Conditions on a value; all that are set must hold. */
export type IntFilter = {
  /** Equal to; null matches nothing. */
  eq?: number | null | undefined;
  /** Greater than or equal to. */
  ge?: number | null | undefined;
  /** Greater than. */
  gt?: number | null | undefined;
  /** One of; an empty list matches nothing. */
  in?: Array<number | null | undefined> | null | undefined;
  /** Less than or equal to. */
  le?: number | null | undefined;
  /** Less than. */
  lt?: number | null | undefined;
  /** Not equal to; null matches everything. */
  ne?: number | null | undefined;
  /** None of; an empty list matches everything. */
  notIn?: Array<number | null | undefined> | null | undefined;
};

/** Conditions on a value; all that are set must hold. */
export type StringFilter = {
  /** Equal to; null matches nothing. */
  eq?: string | null | undefined;
  /** Greater than or equal to. */
  ge?: string | null | undefined;
  /** Greater than. */
  gt?: string | null | undefined;
  /** One of; an empty list matches nothing. */
  in?: Array<string | null | undefined> | null | undefined;
  /** Less than or equal to. */
  le?: string | null | undefined;
  /** Less than. */
  lt?: string | null | undefined;
  /** Not equal to; null matches everything. */
  ne?: string | null | undefined;
  /** None of; an empty list matches everything. */
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


export type BlocksSubscription = { blocks: { id: string | null, workchain_id: number | null, shard: string | null, seq_no: number | null, gen_utime: number | null, chain_order: string | null } | null };

export type BlockFragment = { id: string | null, workchain_id: number | null, shard: string | null, seq_no: number | null, gen_utime: number | null, chain_order: string | null };

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
}`) as unknown as TypedDocumentString<BlocksSubscription, BlocksSubscriptionVariables>;