// Counts visits by language, and prints all counts: the program of the book's page "Other
// languages".
package main

// ANCHOR: program
import (
	"fmt"
	"log"
	"os"
	"strconv"

	"siltstone"
)

func countVisit(tx *siltstone.Transaction) error {
	text, err := tx.Get([]byte("go"))
	if err != nil {
		return err
	}
	count, _ := strconv.Atoi(string(text))
	return tx.Put([]byte("go"), []byte(strconv.Itoa(count+1)))
}

func visit(path string) error {
	db, err := siltstone.OpenOrCreate(path, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	visits, err := db.TableOrCreate("visits", "lsm", nil)
	if err != nil {
		return err
	}
	if err := visits.Transact(countVisit); err != nil {
		return err
	}
	cursor, err := visits.Cursor()
	if err != nil {
		return err
	}
	defer cursor.Close()
	for language, count := range cursor.All() {
		fmt.Printf("%s %s\n", language, count)
	}
	if err := cursor.Err(); err != nil {
		return err
	}
	return db.Close()
}

func main() {
	path := "/tmp/visits"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := visit(path); err != nil {
		log.Fatal(err)
	}
}

// ANCHOR_END: program
