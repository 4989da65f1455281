// Package schedule says when a flow is due.
package schedule
