package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
)

// most is how many transactions one list has.
const most = 50

// options have what this host adds to the schema, out of its ledger:
//
//	type Query {
//	  transactions(account: String, first: Int = 10): [Transaction!]!
//	}
//	type Subscription {
//	  transactions(account: String): Transaction!
//	}
//	type Transaction { id: ID! block: String! from: Wallet! to: Wallet! amount(unit: Unit = NANO): String! }
//	type Wallet { address: String! transactions(first: Int = 10): [Transaction!]! }
func options(l *ledger) *chaingql.Options {
	unit := graphql.NewEnum(graphql.EnumConfig{Name: "Unit", Values: graphql.EnumValueConfigMap{
		"NANO": {Value: "nano", Description: "Billionths."},
		"COIN": {Value: "coin", Description: "Whole ones, with a fraction."},
	}})
	var tx *graphql.Object // a wallet has transactions, which have wallets
	wallet := graphql.NewObject(graphql.ObjectConfig{Name: "Wallet", Description: "One side of a transaction.",
		Fields: graphql.FieldsThunk(func() graphql.Fields {
			return graphql.Fields{
				"address": {Type: graphql.NewNonNull(graphql.String), Resolve: func(p graphql.ResolveParams) (any, error) { return p.Source, nil }},
				"transactions": {Type: list(tx), Args: graphql.FieldConfigArgument{"first": first}, Description: "Its newest transactions.",
					Resolve: func(p graphql.ResolveParams) (any, error) { return l.newest(wanted(p.Args), p.Source.(string)), nil }},
			}
		})})
	tx = graphql.NewObject(graphql.ObjectConfig{Name: "Transaction", Fields: graphql.Fields{
		"id":    {Type: graphql.NewNonNull(graphql.ID)}, // of the struct's field of that name, and so on
		"block": {Type: graphql.NewNonNull(graphql.String), Description: "The chain_order of the block that it is in."},
		"from":  {Type: graphql.NewNonNull(wallet)},
		"to":    {Type: graphql.NewNonNull(wallet)},
		"amount": {Type: graphql.NewNonNull(graphql.String), Args: graphql.FieldConfigArgument{"unit": {Type: unit, DefaultValue: "nano"}},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				amount := p.Source.(transaction).Amount
				if p.Args["unit"] == "coin" { // what the enum's value means, not its name
					return fmt.Sprintf("%d.%09d", amount/1e9, amount%1e9), nil
				}
				return amount, nil
			}},
	}})
	account := &graphql.ArgumentConfig{Type: graphql.String, Description: "The address of one side. Default: everybody."}
	return &chaingql.Options{
		QueryFields: graphql.Fields{"transactions": {Type: list(tx), Description: "The newest transactions, the newest first.",
			Args: graphql.FieldConfigArgument{"account": account, "first": first},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				address, _ := p.Args["account"].(string)
				return l.newest(wanted(p.Args), address), nil
			}}},
		SubscriptionFields: map[string]chaingql.SubscriptionField{"transactions": {
			Field: &graphql.Field{Type: graphql.NewNonNull(tx), Description: "Each new transaction.", Args: graphql.FieldConfigArgument{"account": account}},
			Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
				address, _ := p.Args["account"].(string)
				return l.follow(ctx, address)
			}}},
		// A list within a list multiplies: without a price, a client could have
		// all wallets' transactions' wallets' transactions for that of one call.
		Costs: map[string]func(map[string]any) chaingql.Cost{"Query.transactions": ofList, "Wallet.transactions": ofList},
	}
}

var first = &graphql.ArgumentConfig{Type: graphql.Int, DefaultValue: 10, Description: "How many, 50 at most."}

// wanted is how many transactions a list is asked for.
func wanted(args map[string]any) int {
	n, _ := args["first"].(int) // not there where the client says null
	return min(max(n, 0), most)
}

// ofList is one look into the ledger, for all that is asked of each transaction.
func ofList(args map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 1, Items: wanted(args)} }

func list(of graphql.Type) graphql.Output {
	return graphql.NewNonNull(graphql.NewList(graphql.NewNonNull(of)))
}
