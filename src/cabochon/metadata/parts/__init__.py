"""The parts that a document is made of, by subject. `cabochon.metadata.document` exports all of them."""
