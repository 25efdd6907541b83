package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
)

// most is the maximum number of transactions in a list.
const most = 50

// options returns Options that add these fields to the schema, with data from the ledger l:
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
		"NANO": {Value: "nano", Description: "Billionths of a coin."},
		"COIN": {Value: "coin", Description: "Coins, with nine decimal places."},
	}})
	var tx *graphql.Object // declared first, because Wallet and Transaction refer to each other
	wallet := graphql.NewObject(graphql.ObjectConfig{Name: "Wallet",
		Description: "The sender or the recipient of a transaction.",
		Fields: graphql.FieldsThunk(func() graphql.Fields {
			return graphql.Fields{
				"address": {Type: graphql.NewNonNull(graphql.String),
					Resolve: func(p graphql.ResolveParams) (any, error) {
						return p.Source, nil
					}},
				"transactions": {Type: list(tx), Args: graphql.FieldConfigArgument{"first": first},
					Description: "The newest transactions of the wallet.",
					Resolve: func(p graphql.ResolveParams) (any, error) {
						return l.newest(wanted(p.Args), p.Source.(string)), nil
					}},
			}
		})})
	tx = graphql.NewObject(graphql.ObjectConfig{Name: "Transaction", Fields: graphql.Fields{
		"id": {Type: graphql.NewNonNull(graphql.ID)}, // resolved from the struct field with that name
		"block": {Type: graphql.NewNonNull(graphql.String),
			Description: "The chain_order of the block that contains the transaction."},
		"from": {Type: graphql.NewNonNull(wallet)},
		"to":   {Type: graphql.NewNonNull(wallet)},
		"amount": {Type: graphql.NewNonNull(graphql.String), Args: graphql.FieldConfigArgument{"unit": {Type: unit,
			DefaultValue: "nano"}},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				amount := p.Source.(transaction).Amount
				if p.Args["unit"] == "coin" { // the internal value of the enum, not its name
					return fmt.Sprintf("%d.%09d", amount/1e9, amount%1e9), nil
				}
				return amount, nil
			}},
	}})
	account := &graphql.ArgumentConfig{Type: graphql.String,
		Description: "The address of the sender or the recipient. Default: all accounts."}
	return &chaingql.Options{
		Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{"transactions": {Type: list(tx),
				Description: "The newest transactions, the newest first.",
				Args:        graphql.FieldConfigArgument{"account": account, "first": first},
				Resolve: func(p graphql.ResolveParams) (any, error) {
					address, _ := p.Args["account"].(string)
					return l.newest(wanted(p.Args), address), nil
				}}},
			Subscriptions: map[string]chaingql.SubscriptionField{"transactions": {
				Field: &graphql.Field{Type: graphql.NewNonNull(tx), Description: "Each new transaction.",
					Args: graphql.FieldConfigArgument{"account": account}},
				Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
					address, _ := p.Args["account"].(string)
					return l.follow(ctx, address)
				}}},
			// The items of nested lists multiply. Without a cost, a query with nested lists would count as one call,
			// although it reads the transactions of the wallets of many transactions.
			Costs: map[string]func(map[string]any) chaingql.Cost{"Query.transactions": ofList,
				"Wallet.transactions": ofList},
		},
	}
}

var first = &graphql.ArgumentConfig{Type: graphql.Int, DefaultValue: 10,
	Description: "The number of transactions, at most 50."}

// wanted returns the number of transactions that the arguments request.
func wanted(args map[string]any) int {
	n, _ := args["first"].(int) // absent if the client passes null
	return min(max(n, 0), most)
}

// ofList returns the cost of a list of transactions: one call, and one item per transaction.
func ofList(args map[string]any) chaingql.Cost { return chaingql.Cost{Calls: 1, Items: wanted(args)} }

func list(of graphql.Type) graphql.Output {
	return graphql.NewNonNull(graphql.NewList(graphql.NewNonNull(of)))
}
