package policy

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// words are all that these fields can be.
var words = map[string][]string{"change.risk": risks, "change.strategy": strategies}

// checkWords refuses a comparison of a field with what it can never be: such a rule would pass for
// one that does not match.
func checkWords(parsed *cel.Ast) (err error) {
	visit := func(e ast.Expr) {
		if e.Kind() != ast.CallKind || err != nil {
			return
		}
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Equals, operators.NotEquals, operators.In:
		default:
			return
		}
		left, right := call.Args()[0], call.Args()[1]
		if _, isField := words[fieldOf(left)]; !isField {
			left, right = right, left
		}
		field := fieldOf(left)
		for _, text := range textsOf(right) {
			if known, isField := words[field]; isField && !slices.Contains(known, text) {
				err = fmt.Errorf("%s is never %q; it is one of %s", field, text, strings.Join(known, ", "))
			}
		}
	}
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(visit))
	return err
}

// fieldOf is the field that an expression names, as in change.risk; empty: it names none.
func fieldOf(e ast.Expr) string {
	if e.Kind() != ast.SelectKind || e.AsSelect().Operand().Kind() != ast.IdentKind {
		return ""
	}
	return e.AsSelect().Operand().AsIdent() + "." + e.AsSelect().FieldName()
}

// textsOf are the texts that stand in an expression: one, or those of a list.
func textsOf(e ast.Expr) (texts []string) {
	switch e.Kind() {
	case ast.LiteralKind:
		if text, is := e.AsLiteral().Value().(string); is {
			texts = append(texts, text)
		}
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			texts = append(texts, textsOf(item)...)
		}
	}
	return texts
}
