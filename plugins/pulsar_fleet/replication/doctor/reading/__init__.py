"""How are the facts about replicators read, with few calls?"""
